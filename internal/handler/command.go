// Package handler is virt-handler: the process on each node that runs the guests of the node's VMIs.
//
// It owns the assembly of the parts and the watches. It must not hold a decision about a VMI (vmihandler), a step of
// a guest's life (driver), or a rule about disks, networks or devices.
package handler

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/handler/node"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/processmetrics"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/traceexport"
)

type options struct {
	node       string
	podIP      string
	namespace  string
	kubeletDir string
	probeFile  string
	serving    metricsserver.Options
	pprofAddr  string
	// traces is nil if no collector is configured.
	traces    *traceexport.Exporter
	logFormat logline.Format
}

// NewCommand returns the command `virt handler`.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "handler",
		Short: "Run the guests of one node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logs.Install(o.logFormat)
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of this node (environment NODE_NAME)")
	flags.StringVar(&o.podIP, "pod-ip", os.Getenv("POD_IP"), "address to listen on for virt-api (environment POD_IP)")
	flags.StringVar(&o.namespace, "namespace", clusterconfig.Namespace, "namespace of Drydock's components")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's folder")
	flags.StringVar(&o.probeFile, "probe-file", nodeprobe.File, "what virt-launcher probe-node has found out about this node")
	o.serving.Flags(flags, 8443)
	flags.Var(&o.logFormat, logline.Flag, logline.Usage)
	flags.StringVar(&o.pprofAddr, "pprof-addr", "", "address of /debug/pprof; empty for none, since profiles show what others do")
	return cmd
}

func (o options) run(ctx context.Context) error {
	if o.node == "" {
		return errors.New("--node-name must name this node")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	if err := processmetrics.CountRequests(config, ctrlmetrics.Registry); err != nil {
		return err
	}
	o.traces = traceexport.New("virt-handler", os.LookupEnv, ctrl.Log.WithName("traces"))
	pace := &process.Pace{}
	probe := node.NewProbe()
	mgr, err := newManager(config, o, pace)
	if err != nil {
		return err
	}
	parts, err := assemble(ctx, mgr, o, probe, func(s clusterconfig.Settings) {
		process.SetVerbosity(s.Verbosity.HandlerOn(o.node))
		pace.Set(s.Rates.Handler)
	})
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("adding a part of virt-handler: %w", err)
		}
	}
	return mgr.Start(ctx)
}
