package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

func dialZooKeeper(addresses []string, connections int) (conns []*zk.Conn, err error) {
	for i := range connections {
		conn, events, err := zk.Connect([]string{addresses[i%len(addresses)]}, ttl*time.Second, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		if err := awaitSession(events); err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func awaitSession(events <-chan zk.Event) error {
	late := time.After(30 * time.Second)
	for {
		select {
		case event := <-events: // later ones are dropped when the channel is full
			if event.State == zk.StateHasSession {
				return nil
			}
		case <-late:
			return errors.New("ZooKeeper gives no session")
		}
	}
}

// loadZooKeeper locks by creating an ephemeral node, and releases by deleting it.
func loadZooKeeper(addresses []string, connections, callers int) (all []caller, err error) {
	conns, err := dialZooKeeper(addresses, connections)
	if err != nil {
		return nil, err
	}
	open := zk.WorldACL(zk.PermAll)
	for i := range callers {
		conn := conns[i%connections]
		all = append(all, func(_ context.Context, n int) error {
			path := fmt.Sprintf("/bench-%d-%d", i, n/2%names)
			if n%2 == 1 {
				return conn.Delete(path, 0)
			}
			_, err := conn.Create(path, []byte(value), zk.FlagEphemeral, open)
			return err
		})
	}
	return all, nil
}

// handOffZooKeeper makes callers that take turns by ZooKeeper's recipe for locks.
func handOffZooKeeper(addresses []string, connections, callers int) (all []caller, err error) {
	conns, err := dialZooKeeper(addresses, connections)
	if err != nil {
		return nil, err
	}
	for i := range callers {
		lock := zk.NewLock(conns[i%connections], "/hand-off", zk.WorldACL(zk.PermAll))
		all = append(all, handOff(func(context.Context) error { return lock.Lock() }, func(context.Context) error { return lock.Unlock() }))
	}
	return all, nil
}
