// Package upstream contains the programs of Kubernetes in the drydock binary, unchanged. Only the running command
// is created: two in one process would both claim the signal handler. It must not decide their configuration.
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

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// flags are registered by Kubernetes' packages in any program that links them. cobra shows them for
// every command.
var flags = pflag.CommandLine

// HideFlags hides Kubernetes' flags from later commands. Kubectl restores them.
func HideFlags() { pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError) }

// Etcd is the only program that is not a cobra command.
const Etcd = "etcd"

// Is reports whether a name is a program's.
func Is(name string) bool {
	_, ok := programs[name]
	return ok || name == Etcd
}

// Run runs a program and returns its exit code.
func Run(name string, args []string) int {
	if name == Etcd {
		etcdmain.Main(append([]string{Etcd}, args...))
		return 0
	}
	command := programs[name]()
	command.SetArgs(args)
	return cli.Run(command)
}

// Kubectl runs kubectl and returns its exit code.
func Kubectl(ctx context.Context, kubeconfig string, args []string) int {
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "drydock: preparing kubectl: %v\n", err)
		return 1
	}
	pflag.CommandLine = flags
	// kubectl finds plugins by os.Args.
	os.Args = append([]string{"kubectl"}, args...)
	command := cmd.NewDefaultKubectlCommand()
	command.SetArgs(args)
	command.SetContext(ctx)
	if err := cli.RunNoErrOutput(command); err != nil {
		return 1
	}
	return 0
}
