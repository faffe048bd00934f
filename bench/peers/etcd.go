package main

import (
	"context"
	"fmt"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func dialEtcd(addresses []string, connections int) (clients []*etcd.Client, err error) {
	for i := range connections {
		client, err := etcd.New(etcd.Config{Endpoints: []string{addresses[i%len(addresses)]}, DialTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// loadEtcd locks with a transaction that creates a key, bound to a lease of the connection, unless the key exists. It releases with a transaction
// that deletes the key if the caller has created it.
func loadEtcd(addresses []string, connections, callers int) (all []caller, err error) {
	clients, err := dialEtcd(addresses, connections)
	if err != nil {
		return nil, err
	}
	leases := make([]etcd.LeaseID, connections)
	for i, client := range clients {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl)) // it renews its lease
		if err != nil {
			return nil, err
		}
		leases[i] = session.Lease()
	}
	for i := range callers {
		client, lease, made := clients[i%connections], leases[i%connections], int64(0)
		all = append(all, func(ctx context.Context, n int) error {
			key := fmt.Sprintf("bench/%d/%d", i, n/2%names)
			compare, then := etcd.Compare(etcd.CreateRevision(key), "=", 0), etcd.OpPut(key, value, etcd.WithLease(lease))
			if n%2 == 1 {
				compare, then = etcd.Compare(etcd.CreateRevision(key), "=", made), etcd.OpDelete(key)
			}
			response, err := client.Txn(ctx).If(compare).Then(then).Commit()
			if err != nil {
				return err
			}
			if !response.Succeeded {
				return fmt.Errorf("%s is not as it should be", key)
			}
			made = response.Header.GetRevision()
			return nil
		})
	}
	return all, nil
}

// handOffEtcd makes callers that take turns with etcd's own mutex, each with a session of its own.
func handOffEtcd(addresses []string, connections, callers int) (all []caller, err error) {
	clients, err := dialEtcd(addresses, connections)
	if err != nil {
		return nil, err
	}
	for i := range callers {
		session, err := concurrency.NewSession(clients[i%connections], concurrency.WithTTL(ttl))
		if err != nil {
			return nil, err
		}
		mutex := concurrency.NewMutex(session, "/hand-off")
		all = append(all, handOff(mutex.Lock, mutex.Unlock))
	}
	return all, nil
}
