package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// condition is something that is wrong with an etcd. run says which error each operation got, and how long that took.
type condition struct {
	name string
	args []string // of each etcd
	run  func(*probe) error
}

// probe is a log on an etcd with three members, connected to the first.
type probe struct {
	*cluster
	log  *etcdLog
	last uint64
	open etcd.WatchChan // begun before anything is wrong
	say  func(operation string, begin time.Time, err error)
}

var conditions = []condition{
	{name: "the connected member is killed", run: func(p *probe) error {
		_ = kill(nil, p.etcds[0], nil)
		p.all(3 * time.Second)
		return nil
	}},
	{name: "the connected member is paused", run: func(p *probe) error {
		p.etcds[0].signal(syscall.SIGSTOP)
		p.all(3 * time.Second)
		return nil
	}},
	{name: "a member is paused, and one client has all endpoints", run: shared},
	{name: "the quorum is lost", run: func(p *probe) error {
		_, _ = kill(nil, p.etcds[1], nil), kill(nil, p.etcds[2], nil)
		p.all(15 * time.Second)
		return nil
	}},
	{name: "the quota is reached", args: []string{"--quota-backend-bytes", "16777216"}, run: full},
	{name: "a user may only read", run: func(p *probe) error { return p.as("reader", "r", true) }},
	{name: "a user may read and write the prefix", run: func(p *probe) error { return p.as("writer", "w", true) }},
	{name: "a user may do nothing", run: func(p *probe) error { return p.as("nobody", "n", true) }},
	{name: "no user is named", run: func(p *probe) error { return p.as("", "", true) }},
	{name: "the password is wrong", run: func(p *probe) error { return p.as("reader", "x", true) }},
	{name: "a password is given, but authentication is off", run: func(p *probe) error { return p.as("reader", "r", false) }},
	{name: "the watch has fallen behind a compaction", run: compacted},
	{name: "the record has 1.6 MB", run: func(p *probe) error { p.large(1_600_000); return nil }},
	{name: "the record has 2.2 MB", run: func(p *probe) error { p.large(2_200_000); return nil }},
}

func (p *probe) append(body []byte, limit time.Duration) {
	begin := time.Now()
	p.log.try = limit
	err := p.log.append(context.Background(), record{index: p.last + 1, epoch: 1, body: body})
	if err == nil {
		p.last++
	}
	p.say("append", begin, err)
}

// all tries every operation of the log.
func (p *probe) all(limit time.Duration) {
	p.append([]byte("x"), limit)
	begin := time.Now()
	p.log.try = limit
	_, err := p.log.barrier(context.Background(), p.last)
	p.say("barrier", begin, err)
	begin = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ended := make(chan error, 1)
	p.log.follow(ctx, func(record) {}, func(err error) {
		select {
		case ended <- err:
			cancel()
		default:
		}
	})
	select {
	case err = <-ended:
	default:
		err = errors.New("silence")
	}
	p.say("new watch", begin, err)
	begin = time.Now()
	p.say("watch that was open", begin, p.watched())
}

// watched returns the error of the watch that was open, or an error that says that it has not noticed anything.
func (p *probe) watched() error {
	late := time.After(3 * time.Second)
	for {
		select {
		case response, open := <-p.open:
			if !open {
				return errors.New("closed")
			}
			if response.Err() != nil {
				return response.Err()
			}
		case <-late:
			return errors.New("silence")
		}
	}
}

func (p *probe) large(size int) { p.append(make([]byte, size), 3*time.Second) }

// shared counts the appends that fail at a client with all endpoints while a member that does not lead is paused.
func shared(p *probe) error {
	if err := p.lead("b"); err != nil {
		return err
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	p.log.clients = []*etcd.Client{client}
	p.append(nil, time.Second)
	p.etcds[0].signal(syscall.SIGSTOP)
	failed, begin := 0, time.Now()
	p.log.try = 300 * time.Millisecond
	for range 60 {
		if err := p.log.append(context.Background(), record{index: p.last + 1, epoch: 1}); err != nil {
			failed++
		} else {
			p.last++
		}
	}
	p.say(fmt.Sprintf("%d of 60 appends failed", failed), begin, nil)
	return nil
}

// full fills etcd, and finds out what still works and what ends the alarm.
func full(p *probe) error {
	ctx := context.Background()
	client := p.log.clients[0]
	body := make([]byte, 256<<10)
	for {
		p.log.try = 5 * time.Second
		if err := p.log.append(ctx, record{index: p.last + 1, epoch: 1, body: body}); err != nil {
			p.say(fmt.Sprintf("append after %d MiB", p.last/4), time.Now(), err)
			break
		}
		p.last++
	}
	p.all(3 * time.Second)
	alarms, err := client.AlarmList(ctx)
	p.say(fmt.Sprintf("list of alarms: %v", alarms.Alarms), time.Now(), err)
	status, err := client.Status(ctx, p.etcds[0].client)
	p.say(fmt.Sprintf("status: size %d, in use %d, quota %d, errors %q", status.DbSize, status.DbSizeInUse, status.DbSizeQuota, status.Errors), time.Now(), err)
	begin := time.Now()
	deleted, err := client.Delete(ctx, p.log.key(1), etcd.WithRange(p.log.key(p.last)))
	p.say("deletion of the log", begin, err)
	if err != nil {
		return nil
	}
	begin = time.Now()
	_, err = client.Compact(ctx, deleted.Header.GetRevision(), etcd.WithCompactPhysical())
	p.say("compaction", begin, err)
	_, err = client.AlarmDisarm(ctx, &etcd.AlarmMember{})
	p.say("disarm before defragmentation", time.Now(), err)
	p.append(body, time.Second)
	for _, e := range p.etcds {
		begin = time.Now()
		_, err = client.Defragment(ctx, e.client)
		p.say("defragmentation of "+e.name, begin, err)
	}
	_, err = client.AlarmDisarm(ctx, &etcd.AlarmMember{})
	p.say("disarm", time.Now(), err)
	p.append(body, time.Second)
	return nil
}

// as connects as a user of an etcd with authentication.
func (p *probe) as(name, password string, enable bool) error {
	ctx, client := context.Background(), p.log.clients[0]
	for _, step := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "reader"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "reader", "/locket/", "/locket0", etcd.PermissionType(etcd.PermRead))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, "reader", "r"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "reader", "reader"); return err },
		func() error { _, err := client.UserAdd(ctx, "nobody", "n"); return err },
		func() error { _, err := client.UserAdd(ctx, "writer", "w"); return err },
		func() error { _, err := client.RoleAdd(ctx, "writer"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "writer", "/locket/", "/locket0", etcd.PermissionType(etcd.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserGrantRole(ctx, "writer", "writer"); return err },
		func() error {
			if !enable {
				return nil
			}
			_, err := client.AuthEnable(ctx)
			return err
		},
	} {
		if err := step(); err != nil && !strings.Contains(err.Error(), "role name already exists") {
			return err
		}
	}
	begin := time.Now()
	other, err := etcd.New(etcd.Config{Endpoints: []string{p.etcds[0].client}, DialTimeout: 3 * time.Second, Username: name, Password: password, Logger: silent})
	p.say("connect", begin, err)
	if err != nil {
		return nil
	}
	defer func() { _ = other.Close() }()
	p.log.clients = []*etcd.Client{other}
	p.all(2 * time.Second)
	begin = time.Now()
	_, err = other.Status(ctx, p.etcds[0].client)
	p.say("status", begin, err)
	_, err = other.AlarmList(ctx)
	p.say("list of alarms", begin, err)
	_, err = other.AlarmDisarm(ctx, &etcd.AlarmMember{})
	p.say("disarm", begin, err)
	_, err = other.Compact(ctx, 2)
	p.say("compaction", begin, err)
	_, err = other.Defragment(ctx, p.etcds[0].client)
	p.say("defragmentation", begin, err)
	return nil
}

// compacted watches from a revision that is compacted, and follows the log all the same.
func compacted(p *probe) error {
	ctx, client := context.Background(), p.log.clients[0]
	for range 100 {
		if err := p.log.append(ctx, record{index: p.last + 1, epoch: 1}); err != nil {
			return err
		}
		p.last++
	}
	got, err := client.Get(ctx, "x")
	if err != nil {
		return err
	}
	if _, err := client.Compact(ctx, got.Header.GetRevision(), etcd.WithCompactPhysical()); err != nil {
		return err
	}
	begin := time.Now()
	watch := <-client.Watch(ctx, p.log.prefix, etcd.WithPrefix(), etcd.WithRev(2))
	p.say(fmt.Sprintf("watch from revision 2: canceled %v, compact revision %d", watch.Canceled, watch.CompactRevision), begin, watch.Err())
	read, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	count := 0
	p.log.follow(read, func(record) { count++ }, func(err error) { p.say("follow", begin, err) })
	p.say(fmt.Sprintf("follow from the beginning: %d of %d records", count, p.last), begin, nil)
	if _, err := client.Delete(ctx, p.log.key(1), etcd.WithRange(p.log.key(50))); err != nil {
		return err
	}
	read, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	p.log.follow(read, func(record) {}, func(err error) { p.say("follow from a deleted record", begin, err); cancel() })
	return nil
}

func errorsTable(l *lab) error {
	match, err := regexp.Compile(l.match)
	if err != nil {
		return err
	}
	fmt.Println("| condition | etcd | operation | after, ms | error: type, code, text |")
	fmt.Println("| --- | --- | --- | ---: | --- |")
	for _, one := range conditions {
		for _, version := range l.versions() {
			if !match.MatchString(one.name) {
				continue
			}
			if err := l.provoke(one, version); err != nil {
				fmt.Fprintf(os.Stderr, "%s, %s: %v\n", one.name, version, err)
			}
		}
	}
	return nil
}

func (l *lab) provoke(one condition, version string) error {
	c, err := l.newCluster(3, tuning{100, 1000})
	if err != nil {
		return err
	}
	defer c.stop()
	c.extra = one.args
	if err := c.startEtcds(l.program("etcd-" + version)); err != nil {
		return err
	}
	clients, err := dialEach([]string{c.etcds[0].client})
	if err != nil {
		return err
	}
	defer func() { _ = clients[0].Close() }()
	p := &probe{cluster: c, log: newEtcdLog(clients, "/locket/", 3*time.Second)}
	p.say = func(operation string, begin time.Time, err error) {
		fmt.Printf("| %s | %s | %s | %.0f | %s |\n", one.name, version, operation, ms(time.Since(begin)), describe(err))
	}
	if err := p.log.raise(context.Background(), 0, record{index: 1, epoch: 1, body: []byte("raised")}); err != nil {
		return err
	}
	p.last = 1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.open = clients[0].Watch(etcd.WithRequireLeader(ctx), p.log.prefix, etcd.WithPrefix())
	time.Sleep(100 * time.Millisecond)
	return one.run(p)
}
