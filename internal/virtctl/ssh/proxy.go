package ssh

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/target"
)

// proxyCommand returns the value of ssh's option ProxyCommand: this program, connecting the guest's port with
// its standard input and output. ssh passes it to the user's shell and expands percent signs in it.
func proxyCommand(executable string, global []string, t target.Target, port uint16) string {
	words := append([]string{executable, "port-forward", "--stdio=true"}, global...)
	words = append(words, t.String(), strconv.Itoa(int(port)))
	for i, word := range words {
		words[i] = strings.ReplaceAll(env.ShellWord(word), "%", "%%")
	}
	return strings.Join(words, " ")
}

// The proxy must use the same cluster and user.
func globalFlags(flags *pflag.FlagSet) []string {
	var arguments []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Changed {
			return
		}
		values := []string{flag.Value.String()}
		if list, isList := flag.Value.(pflag.SliceValue); isList {
			values = list.GetSlice()
		}
		for _, value := range values {
			arguments = append(arguments, "--"+flag.Name+"="+value)
		}
	})
	return arguments
}

// The name separates the machine's host keys from those of a machine of that name elsewhere.
func hostName(t target.Target) string {
	return t.Kind + "." + t.Name + "." + t.Namespace
}
