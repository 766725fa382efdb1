// Package controller is virt-controller: the process, its manager and the list of its loops.
//
// It owns how the loops run: leader election, caches, metrics, health. It must not decide about any object.
package controller

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/controller/cdi"
	"drydock.dev/drydock/internal/controller/hotplug"
	"drydock.dev/drydock/internal/controller/metrics"
	"drydock.dev/drydock/internal/controller/snapshot"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/processmetrics"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

type options struct {
	namespace     string
	launcherImage string
	importerImage string
	serving       metricsserver.Options
	// pprofAddr is "" for no profiles.
	pprofAddr string
	// logFormat is also that of the pods that the loops create.
	logFormat logline.Format
	// deniedNetworks are denied to imports beside those that always are, allowedNetworks allowed despite either.
	deniedNetworks, allowedNetworks []string
	maxAttachmentPods               int
	identity                        string
	// Tests have several managers in a process.
	several bool
	// leaseSlack lengthens the lease in tests, where nobody else takes it and a busy API server must not end the loops.
	leaseSlack time.Duration
	// A nil mapper asks the API server.
	mapper meta.RESTMapper
	// guests quiesces guests while their disks are snapshotted; nil uses the manager's configuration.
	guests snapshot.Guests
	now    func() time.Time
}

// NewCommand returns the command `virt controller`.
func NewCommand() *cobra.Command {
	o := options{now: time.Now}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the control loops of VMs, VMIs and DataVolumes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.launcherImage == "" || o.importerImage == "" {
				return fmt.Errorf("--launcher-image and --importer-image must name the container images of launchers and import workers")
			}
			for _, text := range slices.Concat(o.deniedNetworks, o.allowedNetworks) {
				if _, err := netip.ParsePrefix(text); err != nil {
					return fmt.Errorf("reading the networks of imports: %q is no network such as 10.0.0.0/8 or fd00::/8: %w", text, err)
				}
			}
			logs.Install(o.logFormat)
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the API server: %w", err)
			}
			if err := processmetrics.CountRequests(config, crmetrics.Registry); err != nil {
				return err
			}
			if err := prepare(cmd.Context(), config); err != nil {
				return err
			}
			mgr, err := newManager(config, o, &process.Pace{})
			if err != nil {
				return err
			}
			if err := register(cmd.Context(), mgr, o); err != nil {
				return err
			}
			if err := addMetrics(cmd.Context(), mgr, o); err != nil {
				return err
			}
			return mgr.Start(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.namespace, "namespace", clusterconfig.Namespace, "namespace of Drydock's components")
	flags.StringVar(&o.launcherImage, "launcher-image", "", "container image of the launcher pods")
	flags.StringVar(&o.importerImage, "importer-image", "", "container image of the workers that fill claims")
	flags.IntVar(&o.maxAttachmentPods, "max-attachment-pods", hotplug.DefaultMaxAttachmentPods,
		"how many pods hold a VM's hotplugged volumes at rest; more are merged when nothing changes")
	flags.StringSliceVar(&o.deniedNetworks, "import-denied-networks", nil,
		"networks, such as 10.0.0.0/8, that imports must not read from, beside loopback and link-local addresses")
	flags.StringSliceVar(&o.allowedNetworks, "import-allowed-networks", nil, "networks that imports may read from whatever else denies them")
	o.serving.Flags(flags, 8443)
	flags.Var(&o.logFormat, logline.Flag, logline.Usage+"; also of the launchers and the import workers")
	flags.StringVar(&o.pprofAddr, "pprof-addr", "", "address of /debug/pprof; empty for none, since profiles show what others do")
	flags.StringVar(&o.identity, "identity", defaultIdentity(), "name of this process in the leader election")
	return cmd
}

// addMetrics registers virt-controller's own metrics for the whole process.
func addMetrics(ctx context.Context, mgr ctrl.Manager, o options) error {
	transitions := metrics.NewTransitions(mgr.Elected())
	if err := transitions.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	counted := &metrics.Collector{
		Cache: mgr.GetCache(), Elected: mgr.Elected(), Image: o.launcherImage, Namespace: o.namespace,
		Settings: settings(kubeVirt(mgr.GetCache(), o.namespace), o.logFormat),
		Ready:    metricsserver.Readiness(cached(mgr.GetCache())),
	}
	for _, collector := range []prometheus.Collector{counted, transitions} {
		if err := crmetrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics: %w", err)
		}
	}
	return nil
}

// prepare installs the definitions that the caches watch.
func prepare(ctx context.Context, config *rest.Config) error {
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return cdi.Install(ctx, c)
}

// A container restarted in the same pod keeps the pod's name and thereby the lease of its process, which has ended.
func defaultIdentity() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "virt-controller"
	}
	return name
}
