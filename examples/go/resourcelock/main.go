// Command resourcelock has read and write locks on resources, over gRPC:
//
//	resourcelock 127.0.0.1:8891 lock CLIENT RESOURCE read|write
//	resourcelock 127.0.0.1:8891 locks [client=C] [resource=R] [type=read|write]
//	resourcelock 127.0.0.1:8891 unlock ID
//
// A resource has one writer or many readers. A lock that is not free at once is refused, with
// exit status 1. The command lock prints the id of the lock.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("resourcelock ADDRESS lock|locks|unlock …")
	}
	conn, err := lock.Dial(args[:1])
	if err != nil {
		return err
	}
	defer conn.Close()
	locker := Locker{models.NewLocketClient(conn)}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch command, args := args[1], args[2:]; {
	case command == "lock" && len(args) == 3:
		held, err := locker.Lock(ctx, args[0], args[1], args[2])
		if err != nil {
			return err
		}
		fmt.Println(held.GetId())
		return nil
	case command == "unlock" && len(args) == 1:
		return locker.Unlock(ctx, args[0])
	case command == "locks":
		return locker.print(ctx, args)
	}
	return fmt.Errorf("%q: unknown command, or wrong arguments", args[1])
}

// print prints the locks that match args.
func (l Locker) print(ctx context.Context, args []string) error {
	wanted := make(map[string]string)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		wanted[name] = value
	}
	locks, err := l.Locks(ctx, wanted["client"], wanted["resource"], wanted["type"])
	for _, held := range locks {
		fmt.Println(held.GetId(), held.GetOwner(), held.GetResource(), typeOf(held))
	}
	return err
}
