package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// elsewhere maps the words of other programs (etcdctl, consul, kubectl, flock, systemctl) to these commands.
var elsewhere = map[string][]string{
	"acquire": {"lock", "claim"}, "take": {"lock", "claim"}, "mutex": {"lock"}, "flock": {"run"}, "campaign": {"elect"}, "leader": {"elect"}, "election": {"elect"}, "observe": {"elect", "watch"}, "resign": {"release"}, "trylock": {"lock"}, "hold": {"lock", "claim"},
	"exec": {"run"}, "wrap": {"run"}, "start": {"run", "server"}, "serve": {"server"}, "daemon": {"server"}, "agent": {"server"}, "health": {"status"}, "ping": {"status"}, "endpoint": {"status"}, "operator": {"status"}, "htop": {"top"}, "monitor": {"top", "watch"}, "stat": {"top", "status"},
	"unlock": {"release"}, "free": {"release"}, "delete": {"release", "revoke"}, "del": {"release", "revoke"}, "rm": {"release", "revoke"}, "remove": {"release", "revoke"},
	"kill": {"revoke"}, "cancel": {"revoke"}, "abort": {"revoke"}, "break": {"revoke"}, "steal": {"revoke"}, "drain": {"reset"},
	"refresh": {"renew"}, "extend": {"renew"}, "keepalive": {"renew"}, "keep-alive": {"renew"}, "touch": {"renew"}, "update": {"renew"},
	"describe": {"resource", "get"}, "show": {"resource", "get"}, "inspect": {"resource", "get"}, "info": {"resource", "get", "status"}, "why": {"explain"}, "diagnose": {"explain"}, "deadlock": {"explain"}, "deadlocks": {"explain"},
	"queue": {"resource"}, "holder": {"fetch", "resource"}, "holders": {"resource"}, "waiters": {"resource"}, "owner": {"fetch"},
	"ls": {"locks", "claims"}, "list": {"locks", "claims"}, "ps": {"locks", "claims"}, "history": {"claims"},
	"wait": {"claim", "get"}, "enqueue": {"claim"}, "create": {"claim"}, "add": {"claim"}, "member": {"cluster"}, "members": {"cluster", "presences"}, "services": {"presences"},
	"follow": {"watch"}, "tail": {"watch"}, "events": {"watch"}, "logs": {"watch"},
	"token": {"credential"}, "login": {"credential", "whoami"}, "auth": {"credential", "rules"}, "policy": {"rules"}, "acl": {"rules"}, "can": {"can-i"},
	"config": {"context"}, "use": {"context"}, "contexts": {"context"},
}

// unknownCommand is called with the words that name no command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q%s", args[0], didYouMean(suggestCommands(root, args[0]), ""))
}

// suggestCommands returns the commands for a word of another program, or otherwise the commands with a similar spelling.
func suggestCommands(root *cobra.Command, name string) []string {
	if found := elsewhere[strings.ToLower(name)]; found != nil && !root.HasParent() {
		return found
	}
	root.SuggestionsMinimumDistance = 2 // how many letters may be wrong
	return root.SuggestionsFor(name)
}

func didYouMean(names []string, prefix string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + prefix + strings.Join(names, " or "+prefix) + "?)"
}

// suggestFlags returns the flags that are spelled alike.
func suggestFlags(flags *pflag.FlagSet, name string) []string {
	var names []string
	flags.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return alike(names, name)
}

// alike returns the names that are spelled alike, as cobra does for commands.
func alike(names []string, name string) []string {
	parent := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, known := range names {
		parent.AddCommand(&cobra.Command{Use: known, Run: func(*cobra.Command, []string) {}})
	}
	return parent.SuggestionsFor(name)
}
