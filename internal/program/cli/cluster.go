package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models/jsonview"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show and change the nodes of a cluster: servers with --node",
		Long: `Show and change the nodes of a cluster whose servers run with --node. Each command talks to the server on this machine,
through a socket below its --data. It refuses what would end the majority that a cluster needs, and gives the reason.
Only recover works on the folder of a server that does not run. Only status and finalize also work with --etcd.`,
		Example: `  locket cluster status --data /var/lib/locket`,
	}
	cmd.AddCommand(newClusterStatusCommand(), newClusterAddCommand(), newClusterRemoveCommand(), newClusterReplaceCommand(), newClusterTransferCommand(), newClusterFinalizeCommand(), newClusterRecoverCommand())
	return cmd
}

// managing completes a command that uses the node of this machine.
func managing(cmd *cobra.Command, run func(ctx context.Context, m *etcdnode.Manager, args []string) (show.View, error)) *cobra.Command {
	data := addClusterFlags(cmd)
	cmd.RunE = printing(func(cmd *cobra.Command, args []string) (show.View, error) {
		if err := settings.New(cmd.Flags()).Apply("help", "output"); err != nil {
			return nil, err
		}
		m, err := etcdnode.Manage(server.NodeFolder(*data))
		if err != nil {
			return nil, err
		}
		defer func() { _ = m.Close() }()
		return run(cmd.Context(), m, args)
	})
	return cmd
}

func addClusterFlags(cmd *cobra.Command) (data *string) {
	data = new(server.DefaultData)
	cmd.Flags().Var(notEmpty{data}, "data", "the folder of the data of the server on this machine")
	show.AddOutput(cmd)
	return data
}

// readingFormats completes a command that uses the log of a cluster: by way of the node of this machine, or if m is nil in the etcd of c.
func readingFormats(cmd *cobra.Command, run func(ctx context.Context, c server.Config, m *etcdnode.Manager) (show.View, error)) *cobra.Command {
	data, c := addClusterFlags(cmd), server.DefaultConfig()
	addServerFlags(cmd.Flags(), &c, "etcd", "etcd-prefix", "etcd-ca", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file")
	cmd.RunE = printing(func(cmd *cobra.Command, _ []string) (show.View, error) {
		if err := settings.New(cmd.Flags()).Apply("help", "output"); err != nil {
			return nil, err
		}
		var m *etcdnode.Manager
		if len(c.Etcd) == 0 {
			var err error
			if m, err = etcdnode.Manage(server.NodeFolder(*data)); err != nil {
				return nil, fmt.Errorf("%w; if the servers have --etcd, give it here, too", err)
			}
			defer func() { _ = m.Close() }()
		}
		return run(cmd.Context(), c, m)
	})
	return cmd
}

func newClusterStatusCommand() *cobra.Command {
	return readingFormats(&cobra.Command{
		Use:   "status",
		Short: "Show the nodes, the effect of one more failure, and the format of the log",
		Long: `Show the nodes: the leader of etcd, how many changes each is behind, and the effect of one more failure. Then comes the format
of the log, and the newest one that all servers know. The status is 0 if all is well, and 7 if not. The problems name the
commands to type. With --etcd it shows the servers and their formats.`,
		Example: `  locket cluster status --data /var/lib/locket
  locket cluster status -o 'jsonpath=$.problems[*]'`,
	}, func(ctx context.Context, c server.Config, m *etcdnode.Manager) (show.View, error) {
		if m == nil {
			f, err := c.ReadFormats(ctx, m)
			if err != nil {
				return nil, err
			}
			return newFormatView(f), nil
		}
		s, err := m.Status(ctx)
		if err != nil {
			return nil, err
		}
		view := clusterView{Status: s, MayFail: s.MayFail(), Problems: s.Problems(), Next: s.Next()}
		if f, err := c.ReadFormats(ctx, m); err == nil { // otherwise the problems have the reason, or the servers have just been started
			view.Format = new(newFormatView(f))
		}
		if len(view.Problems) > 0 {
			err = exit.With(exit.Degraded, fmt.Errorf("degraded: %s", strings.Join(view.Problems, "; ")))
		}
		return view, err
	})
}

func newClusterFinalizeCommand() *cobra.Command {
	return readingFormats(&cobra.Command{
		Use:   "finalize",
		Short: "Use the newest format that all servers know, without waiting for a day",
		Long: `Have the servers use the newest format of the log that all of them know. They do so by themselves when all have known it for
a day. From then on a server with an older program does not start, so make sure first that you will not take the old program back.
The command is refused while a server does not know a newer format, and names the server.`,
		Example: `  locket cluster finalize --data /var/lib/locket
  locket cluster finalize --etcd http://10.0.0.1:2379`,
	}, func(ctx context.Context, c server.Config, m *etcdnode.Manager) (show.View, error) {
		f, err := c.Finalize(ctx, m)
		if err != nil {
			return nil, err
		}
		return newFormatView(f), nil
	})
}

func newClusterAddCommand() *cobra.Command {
	return managing(&cobra.Command{
		Use:   "add NAME=HOST:PORT",
		Short: "Expect a new node",
		Long: `Expect a new node at an address. Then start it with --node and --join. It begins as a learner, without a vote, and
gets its vote when it has caught up.`,
		Example: `  locket cluster add d=10.0.0.4:8893`,
	}, func(ctx context.Context, m *etcdnode.Manager, args []string) (show.View, error) {
		added, err := etcdnode.ParseMember(args[0])
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		return newChangeView(m, "is expected at "+added.Address, added).after(m.Add(ctx, added))
	})
}

func newClusterRemoveCommand() *cobra.Command {
	return managing(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a node",
		Long: `Remove a node from the cluster. Its server ends, and its data is useless afterwards. A node that was added and never
started has no name yet: give its HOST:PORT.`,
		Example: `  locket cluster remove d`,
	}, func(ctx context.Context, m *etcdnode.Manager, args []string) (show.View, error) {
		return changeView{Node: args[0], Change: "was removed"}.after(m.Remove(ctx, args[0]))
	})
}

func newClusterReplaceCommand() *cobra.Command {
	return managing(&cobra.Command{
		Use:   "replace NAME[=HOST:PORT]",
		Short: "Replace a lost node by a new one",
		Long: `Remove a node whose data is lost, and expect a new one of the same name in its place, at the same address unless another
is given. Stop the server of the lost node first. Then start the new one with an empty folder, --node and --join.`,
		Example: `  locket cluster replace c
  locket cluster replace c=10.0.0.5:8893`,
	}, func(ctx context.Context, m *etcdnode.Manager, args []string) (show.View, error) {
		by := etcdnode.Member{Name: args[0]}
		if strings.Contains(args[0], "=") {
			var err error
			if by, err = etcdnode.ParseMember(args[0]); err != nil {
				return nil, exit.With(exit.Usage, err)
			}
		}
		address, err := m.Replace(ctx, by)
		by.Address = address
		return newChangeView(m, "was removed; a new one is expected at "+address, by).after(err)
	})
}

func newClusterTransferCommand() *cobra.Command {
	return managing(&cobra.Command{
		Use:     "transfer NAME",
		Short:   "Make another node the leader of etcd",
		Long:    `Make another node the leader of etcd, for example before maintenance. Run this on the machine of the present leader.`,
		Example: `  locket cluster transfer b`,
	}, func(ctx context.Context, m *etcdnode.Manager, args []string) (show.View, error) {
		return changeView{Node: args[0], Change: "leads"}.after(m.Transfer(ctx, args[0]))
	})
}

func newClusterRecoverCommand() *cobra.Command {
	data, o := server.DefaultData, restoring{}
	var lost []string
	cmd := &cobra.Command{
		Use:   "recover --lost NAME,...",
		Short: "Make the last node a cluster of its own, when a majority is lost for ever",
		Long: `Make the node in the folder --data a cluster of its own, when a majority of the nodes is lost for ever. Stop its server
first. --lost names all other nodes. The command is refused while one of them answers. If some nodes are left, recover the
node that had the leader or the last changes, and stop the servers of the others.

Changes that this node has not received are lost, even if a client was told that they succeeded. So the server starts as
after "locket restore": fencing tokens continue above all that may have been given out, and until the longest known TTL
has passed nothing is granted. The data is first backed up into --data, as before-recovery.backup.

Then start the server as before; --cluster and --join have no effect. The other nodes are of no use any more: if one comes
back, it ends when it reaches this one. Add each again with "locket cluster add", an empty folder and --join. If the
command was interrupted, repeat it.`,
		Example: `  locket cluster recover --data /var/lib/locket --lost b,c`,
		RunE: printing(func(cmd *cobra.Command, _ []string) (show.View, error) {
			if err := settings.New(cmd.Flags()).Apply("help", "output"); err != nil {
				return nil, err
			}
			options, err := o.of(cmd)
			if err != nil {
				return nil, err
			}
			recovered, err := server.RecoverNode(cmd.Context(), data, lost, options)
			if err != nil {
				return nil, err
			}
			return newRecoverView(recovered, data), nil
		}),
	}
	cmd.Flags().Var(notEmpty{&data}, "data", "the folder of the data of the server on this machine")
	cmd.Flags().StringSliceVar(&lost, "lost", nil, "the names of all other nodes, which are given up")
	o.addFlags(cmd.Flags())
	show.AddOutput(cmd)
	return cmd
}

// recoverView is the result of a recovery.
type recoverView struct {
	Node       string           `json:"node"`
	LastChange string           `json:"last_change,omitempty"`
	Quarantine jsonview.Seconds `json:"quarantine"`
	Backup     string           `json:"backup"`
	Next       string           `json:"next"`
}

func newRecoverView(r server.Recovered, data string) recoverView {
	v := recoverView{Node: r.Name, Quarantine: jsonview.Seconds(r.Quarantine.Seconds()), Backup: r.Backup, Next: fmt.Sprintf("locket server --data %s --node %s", data, r.Name)}
	if !r.LastChange.IsZero() {
		v.LastChange = r.LastChange.UTC().Format(jsonview.TimeFormat)
	}
	return v
}

func (v recoverView) Names() []string { return []string{v.Node} }

func (v recoverView) Text(show.Look) string {
	text := printable.OneLine(v.Node) + " is a cluster of its own\n"
	if v.LastChange != "" {
		text += "its last change is of " + v.LastChange + "; later ones are lost, even if clients were told that they succeeded\n"
	}
	return text + grantedAfter(v.Quarantine) + "the data before the recovery is in " + printable.OneLine(v.Backup) + "\n" +
		"now type: " + printable.OneLine(v.Next) + " (with its other flags), and for each further node: locket cluster add NAME=HOST:PORT\n"
}

// changeView is a change of a node.
type changeView struct {
	Node   string `json:"node"`
	Change string `json:"change"`
	// Next is the command to type next.
	Next string `json:"next,omitempty"`
}

func newChangeView(m *etcdnode.Manager, change string, node etcdnode.Member) changeView {
	return changeView{node.Name, change, fmt.Sprintf("locket server --data DIR --node %s --join %s", node.Name, m.Address())}
}

// after returns the change, unless it has failed with an error.
func (v changeView) after(err error) (show.View, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (v changeView) Names() []string { return []string{v.Node} }

func (v changeView) Text(show.Look) string {
	text := printable.OneLine(v.Node+" "+v.Change) + "\n"
	if v.Next != "" {
		text += "on its machine, type: " + printable.OneLine(v.Next) + "\n"
	}
	return text
}

// clusterView is how a cluster is.
type clusterView struct {
	etcdnode.Status
	MayFail  int         `json:"may_fail"`
	Problems []string    `json:"problems"`
	Next     string      `json:"next"`
	Format   *formatView `json:"format,omitempty"`
}

func (v clusterView) Names() []string {
	return show.NamesOf(v.Nodes, func(n etcdnode.NodeStatus) string { return n.Name })
}

func (v clusterView) Text(look show.Look) string {
	t := show.NewTable(show.Long("NODE"), show.Long("ADDRESS"), show.Fixed("ROLE"), show.Fixed("ANSWERS"), show.Fixed("BEHIND"), show.OnlyWide("ID"))
	for _, n := range v.Nodes {
		answers, behind := "yes", strconv.FormatInt(n.Behind, 10)
		if !n.Answers {
			answers, behind = "no", "?"
		}
		t.Add(show.Plain(printable.Quoted(n.Name)), show.Plain(printable.OneLine(n.Address)), show.Plain(string(n.Role)), show.Plain(answers), show.Plain(behind), show.Plain(n.ID))
	}
	verdict := show.Colored("ok: "+v.Next, show.Green)
	if len(v.Problems) > 0 {
		verdict = show.Colored("degraded: "+v.Next, show.Red)
	}
	text := look.Paint(verdict) + "\n" + t.Text(look)
	if v.Format != nil {
		text += v.Format.sentence()
	}
	return text
}

// formatView is the format of the log of a cluster, and the formats that its servers know.
type formatView struct {
	Used    uint64         `json:"used"`
	Newest  uint64         `json:"newest"` // that all servers know
	From    string         `json:"from,omitempty"`
	Servers []serverFormat `json:"servers"`

	formats server.Formats
}

type serverFormat struct {
	Name    string `json:"name"`
	Host    string `json:"host"`
	Version string `json:"version"`
	Format  uint64 `json:"format"`
}

func newFormatView(f server.Formats) formatView {
	v := formatView{Used: f.Used, Newest: f.Newest, formats: f}
	if f.From != 0 {
		v.From = f.From.Std().UTC().Format(time.RFC3339)
	}
	for _, s := range f.Servers {
		v.Servers = append(v.Servers, serverFormat{s.Name, s.Host, s.Version, s.Format})
	}
	return v
}

func (v formatView) Names() []string {
	return show.NamesOf(v.Servers, func(s serverFormat) string { return s.Name })
}

func (v formatView) Text(look show.Look) string {
	t := show.NewTable(show.Long("SERVER"), show.Long("HOST"), show.Long("VERSION"), show.Fixed("KNOWS FORMAT"))
	for _, s := range v.Servers {
		t.Add(show.Plain(printable.Quoted(s.Name)), show.Plain(printable.OneLine(s.Host)), show.Plain(printable.OneLine(s.Version)), show.Plain(strconv.FormatUint(s.Format, 10)))
	}
	return v.sentence() + t.Text(look)
}

// sentence says which format is in use, and what comes next.
func (v formatView) sentence() string {
	text := fmt.Sprintf("the log has format %d", v.Used)
	latest, behind := v.formats.Latest()
	switch {
	case v.Newest > v.Used && v.From != "":
		text += fmt.Sprintf("; all servers know %d, and use it from %s, or when you type: locket cluster finalize", v.Newest, v.From)
	case v.Newest > v.Used:
		text += fmt.Sprintf("; all servers know %d, and use it after a day, or when you type: locket cluster finalize", v.Newest)
	case behind != nil:
		text += fmt.Sprintf("; some servers know %d, but %s on %s does not", latest, printable.Quoted(behind.Name), printable.OneLine(behind.Host))
	}
	return text + "\n"
}
