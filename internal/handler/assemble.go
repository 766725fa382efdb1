package handler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/nodekey"
	"drydock.dev/drydock/internal/contracts/migrationwire"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/eventnote"
	"drydock.dev/drydock/internal/handler/device"
	"drydock.dev/drydock/internal/handler/driver"
	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/migrationproxy"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/node"
	"drydock.dev/drydock/internal/handler/nodecpus"
	"drydock.dev/drydock/internal/handler/nodepostcopy"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/runningguest"
	"drydock.dev/drydock/internal/handler/server"
	"drydock.dev/drydock/internal/handler/stream"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

// hostRoot is the node's root directory: virt-handler shares the node's PID namespace.
const hostRoot = "/proc/1/root"

// deviceNodes is the container's tmpfs of device nodes, which goes with the container.
const deviceNodes = "/dev"

// changed is called whenever the settings may have changed.
func assemble(ctx context.Context, mgr ctrl.Manager, o options, probe *node.Probe, changed func(clusterconfig.Settings)) ([]manager.Runnable, error) {
	watcher, err := podpath.NewWatcher()
	if err != nil {
		return nil, err
	}
	selinux, err := nodeselinux.Find(nodeselinux.Real{})
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	settings := &clusterconfig.Current{}
	networks := network.New(mgr.GetLogger().WithName("network"))
	consoles := stream.NewConsoles()
	certificates := certs.NewSource(clientset, certs.HandlerServer())
	moves, migrations := migrate(mgr, o, certificates, settings)
	var supervisor *driver.Supervisor
	costs, panics := metrics.NewMigrations(o.node), metrics.NewPanics(func() map[types.NamespacedName]uint64 { return supervisor.Rounds() })
	supervisor = driver.NewSupervisor(&driver.Env{
		Node: o.node, Pods: filepath.Join(o.kubeletDir, "pods"), Watcher: watcher, Network: networks,
		Cluster: &cluster{
			reader: mgr.GetAPIReader(), writer: mgr.GetClient(),
			recorder: eventnote.Fitting(mgr.GetEventRecorder("virt-handler")),
		},
		Disks:     preparation.MakeDisks,
		Volumes:   podpath.Volumes{Kubelet: o.kubeletDir, Host: hostRoot, Nodes: deviceNodes},
		SELinux:   selinux,
		Migration: moves,
		Migrated:  costs.Add,
		Panicked:  panics.Add,
		Settings:  settings.Get,
		Attached:  recordConsole(consoles, mgr.GetLogger().WithName("console")),
		Traced:    o.traces.Sender(),
		FirstLine: firstLine(consoles),
		KVM:       probe.KVM,
		Belongs:   func(peer *podpath.Peer, pod types.UID) error { return peer.BelongsTo(string(pod)) },
		Now:       time.Now,
		Log:       mgr.GetLogger().WithName("driver"),
	})
	lifetime := metrics.NewCertificate(o.node)
	for _, collector := range []prometheus.Collector{metrics.NewCollector(o.node, supervisor.Usage), costs, panics, lifetime} {
		if err := ctrlmetrics.Registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the guests' metrics: %w", err)
		}
	}
	if err := watch(ctx, mgr.GetCache(), supervisor, &clusterconfig.Watched{Home: o.namespace, Current: settings, Changed: changed}); err != nil {
		return nil, err
	}
	coming, err := watchIncoming(ctx, mgr, o, supervisor)
	if err != nil {
		return nil, err
	}
	served := serve(mgr, o, supervisor, consoles, &nodekey.Keeper{
		Node: o.node, Requests: clientset.CertificatesV1().CertificateSigningRequests(), Holder: certificates,
		Used: func(c nodecert.InUse) { lifetime.Use(c.Leaf.NotAfter, c.Renew) },
		Log:  mgr.GetLogger().WithName("certificate"),
	}, certificates)
	offering, err := offer(mgr, o, probe, settings, selinux != nil, supervisor)
	if err != nil {
		return nil, err
	}
	served = append(served, label(mgr, o)...)
	return append(served, coming, migrations,
		manager.RunnableFunc(o.traces.Run),
		manager.RunnableFunc(watcher.Run),
		offering,
		manager.RunnableFunc(func(ctx context.Context) error {
			defer networks.Close()
			return supervisor.Run(ctx)
		}),
	), nil
}

// label maintains the labels that may change while virt-handler runs.
func label(mgr ctrl.Manager, o options) []manager.Runnable {
	postCopy := &nodepostcopy.Keeper{
		Node: o.node, Writer: mgr.GetClient(), Profile: nodepostcopy.ProfileIn(o.kubeletDir),
		Filters: nodepostcopy.Filters, Try: nodepostcopy.Try, Log: mgr.GetLogger().WithName("postcopy"),
	}
	cpuManager := &nodecpus.Keeper{
		Node: o.node, Writer: mgr.GetClient(), State: nodecpus.StateFile(o.kubeletDir), Log: mgr.GetLogger().WithName("cpumanager"),
		Guests: func(ctx context.Context) ([]v1.VirtualMachineInstance, error) {
			var list v1.VirtualMachineInstanceList
			err := mgr.GetCache().List(ctx, &list)
			return list.Items, err
		},
	}
	return []manager.Runnable{manager.RunnableFunc(postCopy.Run), manager.RunnableFunc(cpuManager.Run)}
}

// offer opens the node to guests after its probe: it wakes the waiting ones, and the device plugins register with the
// kubelet. Running guests do not wait.
func offer(mgr ctrl.Manager, o options, probe *node.Probe, settings *clusterconfig.Current, selinux bool, supervisor *driver.Supervisor) (manager.Runnable, error) {
	resources := func() []device.Resource {
		return device.Resources(device.Facts{
			KVM: probe.Found().Use() == nodeprobe.KVM, Exists: device.Exists,
			Emulation: func() bool { return settings.Get().UseEmulation },
		})
	}
	labeler := sync.OnceValue(func() *node.Labeler {
		var offers []string
		for _, resource := range resources() {
			offers = append(offers, resource.Name)
		}
		return &node.Labeler{
			Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Node: o.node, Probe: probe.Found(), SELinux: selinux,
			Offers:   offers,
			Recorder: eventnote.Fitting(mgr.GetEventRecorder("virt-handler")), Log: mgr.GetLogger().WithName("node"),
		}
	})
	offers := func(ctx context.Context) error {
		if err := probe.Known(ctx); err != nil {
			return err
		}
		return labeler().Await(ctx)
	}
	serving := o.serving
	serving.Uncompressed = true
	serving.Restrict = func(config *tls.Config) { settings.Get().TLS.Restrict(config) }
	serving.Ready = ready(mgr.GetCache().WaitForCacheSync, offers)
	if err := metricsserver.Add(mgr, serving); err != nil {
		return nil, err
	}
	if err := ctrlmetrics.Registry.Register(&metrics.Process{
		Node: o.node, Ready: metricsserver.Readiness(serving.Ready), Rounds: supervisor.Rounds,
		Deprecated: func() []string { return probe.Found().DeprecatedMachineTypes },
	}); err != nil {
		return nil, fmt.Errorf("registering virt-handler's own metrics: %w", err)
	}
	return manager.RunnableFunc(func(ctx context.Context) error {
		err := probe.Await(ctx, o.probeFile)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		found := probe.Found()
		mgr.GetLogger().Info("the node was probed", "selinux", selinux, "guests", found.Use(), "qemu", found.QEMU, "kvm", found.KVM, "tcg", found.TCG)
		supervisor.WakeAll()
		for _, resource := range resources() {
			plugin := device.NewPlugin(resource, filepath.Join(o.kubeletDir, "device-plugins"), mgr.GetLogger().WithName("device"))
			group.Go(func() error { return plugin.Run(ctx) })
		}
		group.Go(func() error { return labeler().Run(ctx) })
		group.Go(func() error { return passThrough(mgr, o, settings).Run(ctx) })
		group.Go(func() error {
			if err := probe.AwaitAnother(ctx, o.probeFile); ctx.Err() == nil {
				return err
			}
			return nil
		})
		return group.Wait()
	}), nil
}

// passThrough offers the PCI devices that are permitted.
func passThrough(mgr ctrl.Manager, o options, settings *clusterconfig.Current) *device.PCI {
	return &device.PCI{
		Sys: os.DirFS("/sys"), Dev: os.DirFS(filepath.Join(hostRoot, deviceNodes)), Dir: filepath.Join(o.kubeletDir, "device-plugins"),
		Permitted: func() hostdevice.Permitted { return settings.Get().HostDevices },
		Log:       mgr.GetLogger().WithName("device"),
	}
}

func watch(ctx context.Context, informers ctrlcache.Cache, s *driver.Supervisor, settings *clusterconfig.Watched) error {
	handlers := map[client.Object]cache.ResourceEventHandler{
		&v1.VirtualMachineInstance{}: vmisShown(s, driver.Here),
		&corev1.Pod{}:                onChange(s.PodSeen, s.PodGone),
		&v1.KubeVirt{}:               onChange(settings.Seen, settings.Gone),
	}
	for kind, handler := range handlers {
		informer, err := informers.GetInformer(ctx, kind, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}

func onChange[T client.Object](seen, gone func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if object, ok := obj.(T); ok {
				seen(object)
			}
		},
		UpdateFunc: func(_, obj any) {
			if object, ok := obj.(T); ok {
				seen(object)
			}
		},
		DeleteFunc: func(obj any) {
			if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = missed.Obj
			}
			if object, ok := obj.(T); ok {
				gone(object)
			}
		},
	}
}

// recordConsole opens a guest's console at its start, for later viewers of the boot messages.
func recordConsole(consoles *stream.Consoles, log logr.Logger) func(context.Context, *runningguest.Guest) {
	return func(ctx context.Context, guest *runningguest.Guest) {
		if _, err := consoles.Open(ctx, guest.ConsoleKey(), guest.DialSerial); err != nil {
			logs.VMI(log, guest.VMI).V(1).Info("the console is not recorded", "reason", err.Error())
		}
	}
}

func firstLine(consoles *stream.Consoles) func(context.Context, *runningguest.Guest) (time.Time, bool) {
	return func(ctx context.Context, guest *runningguest.Guest) (time.Time, bool) {
		console, err := consoles.Open(ctx, guest.ConsoleKey(), guest.DialSerial)
		if err != nil {
			return time.Time{}, false
		}
		return console.FirstLine(ctx)
	}
}

// serve returns the HTTP server for virt-api and its certificate's keeper. Until there is one, connections are
// refused.
func serve(mgr ctrl.Manager, o options, s *driver.Supervisor, consoles *stream.Consoles, keeper *nodekey.Keeper, source *certs.Source) []manager.Runnable {
	http := server.New(machines{s}, consoles, source.ServerConfig(), mgr.GetLogger().WithName("server"))
	address := net.JoinHostPort(o.podIP, strconv.Itoa(nodeapi.Port))
	return []manager.Runnable{
		manager.RunnableFunc(source.Start),
		manager.RunnableFunc(keeper.Start),
		manager.RunnableFunc(func(ctx context.Context) error {
			defer consoles.Close()
			select {
			case <-source.Ready():
			case <-ctx.Done():
				return nil
			}
			return http.Run(ctx, address)
		}),
	}
}

// networkMissing is for a node that is not on the migration network.
const networkMissing = "MigrationNetworkMissing"

func migrate(mgr ctrl.Manager, o options, source *certs.Source, settings *clusterconfig.Current) (*migration.Node, manager.Runnable) {
	log := mgr.GetLogger().WithName("migration")
	expected := &migrationproxy.Expectations{}
	recorder := eventnote.Fitting(mgr.GetEventRecorder("virt-handler"))
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: o.node, UID: types.UID(o.node)}
	configured := func() string {
		if network := settings.Get().Migrations.Network; network != nil {
			return *network
		}
		return ""
	}
	address := migrationproxy.OwnAddress(o.podIP, configured, func(missing string) {
		log.Info("migrations to this node do not come over the network that is configured for them", "reason", missing)
		recorder.Eventf(node, nil, corev1.EventTypeWarning, networkMissing, "Migrate",
			"Migrations to this node come over the pods' network, not the one of configuration.migrations.network: %s", missing)
	})
	proxy := migrationproxy.NewServer(expected, source.PeerServerConfig(migrationwire.Protocol), address, log)
	moves := &migration.Node{TLS: source.PeerClientConfig, Expected: expected, Address: proxy.Address, CPUs: runtime.GOMAXPROCS(0)}
	return moves, manager.RunnableFunc(proxy.Run)
}

func vmisShown(s *driver.Supervisor, by driver.Watch) cache.ResourceEventHandler {
	return onChange(
		func(vmi *v1.VirtualMachineInstance) { s.VMISeen(by, vmi) },
		func(vmi *v1.VirtualMachineInstance) { s.VMIGone(by, vmi.UID) },
	)
}

// watchIncoming is for the VMIs that migrate to this node: one label selector can't match them and the node's own.
func watchIncoming(ctx context.Context, mgr ctrl.Manager, o options, s *driver.Supervisor) (manager.Runnable, error) {
	coming, err := ctrlcache.New(mgr.GetConfig(), ctrlcache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&v1.VirtualMachineInstance{}: {Label: labels.SelectorFromSet(labels.Set{v1.MigrationTargetNodeNameLabel: o.node})},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the VMIs that migrate to this node: %w", err)
	}
	informer, err := coming.GetInformer(ctx, &v1.VirtualMachineInstance{}, ctrlcache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(vmisShown(s, driver.Coming))
	}
	if err != nil {
		return nil, fmt.Errorf("watching the VMIs that migrate to this node: %w", err)
	}
	return coming, nil
}

type machines struct{ supervisor *driver.Supervisor }

func (m machines) Lookup(namespace, name string, uid types.UID) (server.Machine, error) {
	return m.supervisor.Lookup(namespace, name, uid)
}
