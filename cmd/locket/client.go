package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

const clientTimeout = 10 * time.Second

// clientFlags are those of every command that talks to a server.
type clientFlags struct{ address string }

func (f *clientFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "address", cmp.Or(os.Getenv("LOCKET_ADDRESS"), defaultGRPCAddress),
		"gRPC address of a server ($LOCKET_ADDRESS)")
}

// call dials the server and lets fn talk to it.
func (f *clientFlags) call(fn func(models.LocketClient) error) error {
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := fn(models.NewLocketClient(conn)); err != nil {
		return fmt.Errorf("%s: %s", f.address, status.Convert(err).Message())
	}
	return nil
}

func newLockCommand() *cobra.Command {
	var (
		flags        clientFlags
		owner, value string
		ttl          time.Duration
		presence     bool
	)
	cmd := &cobra.Command{
		Use:     "lock NAME",
		Short:   "Take a lock, or renew it, and print its fencing token",
		Example: "  locket lock nightly-report --owner $(hostname) --ttl 1m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < time.Second || ttl%time.Second != 0 {
				return fmt.Errorf("--ttl %s: must be whole seconds, at least 1s", ttl)
			}
			resource := &models.Resource{Key: args[0], Owner: owner, Value: value, TypeCode: models.TypeCode_LOCK}
			if presence {
				resource.TypeCode = models.TypeCode_PRESENCE
			}
			return flags.call(func(client models.LocketClient) error {
				ctx, cancel := contextWithTimeout(cmd)
				defer cancel()
				resp, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: int64(ttl / time.Second)})
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), resp.GetToken())
				}
				return err
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&owner, "owner", "", "who takes the lock (required)")
	cmd.Flags().StringVar(&value, "value", "", "what others are to see with the lock")
	cmd.Flags().DurationVar(&ttl, "ttl", 15*time.Second, "how long the lock is held without being renewed")
	cmd.Flags().BoolVar(&presence, "presence", false, "announce a presence rather than a lock")
	_ = cmd.MarkFlagRequired("owner")
	return cmd
}

func newFetchCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "fetch NAME",
		Short: "Print who holds a lock: owner, fencing token, value",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.call(func(client models.LocketClient) error {
				ctx, cancel := contextWithTimeout(cmd)
				defer cancel()
				resp, err := client.Fetch(ctx, &models.FetchRequest{Key: args[0]})
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\t%d\t%s\n",
						resp.GetResource().GetOwner(), resp.GetToken(), resp.GetResource().GetValue())
				}
				return err
			})
		},
	}
	flags.add(cmd)
	return cmd
}

func newReleaseCommand() *cobra.Command {
	var (
		flags clientFlags
		owner string
		token uint64
	)
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Give a lock back",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &models.ReleaseRequest{Resource: &models.Resource{Key: args[0], Owner: owner}}
			if token != 0 {
				req.Token = &token
			}
			return flags.call(func(client models.LocketClient) error {
				ctx, cancel := contextWithTimeout(cmd)
				defer cancel()
				_, err := client.Release(ctx, req)
				return err
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&owner, "owner", "", "who holds the lock (required)")
	cmd.Flags().Uint64Var(&token, "token", 0, "release only the grant with this fencing token")
	_ = cmd.MarkFlagRequired("owner")
	return cmd
}
