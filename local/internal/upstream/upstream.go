// Package upstream holds the programs of Kubernetes that the drydock binary
// contains. Each is the project's own command, unchanged; only the one
// that is to run is made, because two in one process both claim the signal
// handler. It must not decide how they are configured.
package upstream

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps a program's name to what makes its command.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// flags are those that Kubernetes' packages register for whatever program links
// them; cobra shows them with every command.
var flags = pflag.CommandLine

// HideFlags takes Kubernetes' flags from the commands that are made from now on. A
// program of Kubernetes that is run later has them all the same.
func HideFlags() { pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError) }

// Etcd is the one program that is not a cobra command.
const Etcd = "etcd"

// Is reports whether a name is that of a program.
func Is(name string) bool {
	_, ok := programs[name]
	return ok || name == Etcd
}

// Run runs a program to its end and returns its exit code.
func Run(name string, args []string) int {
	if name == Etcd {
		etcdmain.Main(append([]string{Etcd}, args...))
		return 0
	}
	command := programs[name]()
	command.SetArgs(args)
	return cli.Run(command)
}

// Kubectl runs kubectl with the given arguments.
func Kubectl(ctx context.Context, kubeconfig string, args []string) int {
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "drydock: preparing kubectl: %v\n", err)
		return 1
	}
	pflag.CommandLine = flags
	// kubectl looks at the process's own arguments when it searches for plugins.
	os.Args = append([]string{"kubectl"}, args...)
	command := cmd.NewDefaultKubectlCommand()
	command.SetArgs(args)
	command.SetContext(ctx)
	if err := cli.RunNoErrOutput(command); err != nil {
		return 1
	}
	return 0
}
