// Package api is virt-api: the admission webhooks of Drydock's kinds, the aggregated APIs subresources.kubevirt.io and
// upload.cdi.kubevirt.io, error responses for groups that are not served, and the upload proxy, in one process with one
// self-issued certificate.
//
// This package only assembles the parts. The rules are in defaults, validate, subresource, notserved and upload.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"drydock.dev/drydock/internal/api/notserved"
	"drydock.dev/drydock/internal/api/registration"
	"drydock.dev/drydock/internal/api/server"
	"drydock.dev/drydock/internal/api/subresource"
	"drydock.dev/drydock/internal/api/upload"
	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/nodesigner"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/metricsserver"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/process"
	"drydock.dev/drydock/internal/processmetrics"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/traceexport"
)

// These APIServices get the authority of virt-api's certificate.
const (
	apiService      = "v1." + v1.SubresourceGroupName
	olderAPIService = "v1alpha3." + v1.SubresourceGroupName
)

type options struct {
	kubeconfig    string
	address       string
	uploadAddress string
	guestfsImage  string
	logFormat     logline.Format
	serving       metricsserver.Options
}

// NewCommand returns the command virt-api.
func NewCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Admission webhooks and the subresource API",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty inside of a cluster")
	cmd.Flags().StringVar(&o.address, "address", ":8443", "address to serve webhooks and the API on")
	cmd.Flags().StringVar(&o.uploadAddress, "upload-address", ":8444", "address to take uploads of disk images on")
	// The other components serve their metrics on the port of virt-api's API.
	o.serving.Flags(cmd.Flags(), 8445)
	cmd.Flags().StringVar(&o.guestfsImage, "guestfs-image", layout.DevelGuestfsImage, "container image of maintenance pods that name no other")
	cmd.Flags().Var(&o.logFormat, logline.Flag, logline.Usage)
	return cmd
}

func run(ctx context.Context, o options) error {
	logs.Install(o.logFormat)
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	if err := processmetrics.CountRequests(config, metrics.Registry); err != nil {
		return err
	}
	// Every verb needs a few requests, and none of them may wait for another.
	config.QPS = -1
	served := &served{options: o, config: config, serving: make(chan struct{})}
	config.RateLimiter = &served.pace
	mgr, err := served.manager()
	if err != nil {
		return err
	}
	if err := served.add(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

type served struct {
	options  options
	config   *rest.Config
	settings clusterconfig.Current
	// The KubeVirt object may limit the requests to the API server: pace those of the API, webhookPace the webhooks'.
	pace, webhookPace process.Pace
	// serving is closed once virt-api answers requests, known once kube-apiserver has the certificate's authority.
	serving chan struct{}
	known   <-chan struct{}
}

// manager caches only the KubeVirt object, virt-handler's pods, and the objects with its certificates.
func (p *served) manager() (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), instancetypev1.AddToScheme(scheme),
		cdiv1.AddToScheme(scheme), apiregistrationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering API types: %w", err)
	}
	pagedlist.Bound(p.config)
	namespace := map[string]cache.Config{clusterconfig.Namespace: {}}
	mgr, err := ctrl.NewManager(p.config, ctrl.Options{
		Scheme:  scheme,
		Metrics: ctrlserver.Options{BindAddress: metricsserver.None},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}:                            {Namespaces: namespace},
				&corev1.ConfigMap{}:                         {Namespaces: namespace},
				&certificatesv1.CertificateSigningRequest{}: nodesigner.Cached(),
				&corev1.Pod{}: {
					Namespaces: namespace,
					Label:      labels.SelectorFromSet(labels.Set{v1.AppLabel: "virt-handler"}),
				},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	serving := p.options.serving
	serving.Restrict = func(config *tls.Config) { p.settings.Get().TLS.Restrict(config) }
	serving.Ready = p.ready
	return mgr, metricsserver.Add(mgr, serving)
}

// ready waits until kube-apiserver can call virt-api, or the probe times out: the kubelet emits a warning for each
// failed probe.
func (p *served) ready(r *http.Request) error {
	select {
	case <-p.serving:
	case <-r.Context().Done():
		return errors.New("virt-api does not serve yet")
	}
	select {
	case <-p.known:
		return nil
	case <-r.Context().Done():
		return errors.New("kube-apiserver does not know the certificate's authority yet")
	}
}

func (p *served) add(mgr manager.Manager) error {
	lifetimes := &certs.Lifetimes{}
	known, err := certs.Add(mgr, lifetimes, apiService, olderAPIService, webhookVersion.Version+"."+webhookVersion.Group)
	if err != nil {
		return err
	}
	p.known = known
	clientset, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	serving := certs.NewSource(clientset, certs.APIServer())
	serving.Restrict(func(config *tls.Config) { p.settings.Get().TLS.Restrict(config) })
	calling := certs.NewSource(clientset, certs.HandlerClient())
	// A verb is judged by the current state.
	direct, err := client.New(p.config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	judging := rest.CopyConfig(p.config)
	judging.RateLimiter = &p.webhookPace
	judge, err := client.New(judging, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	traces := traceexport.New("virt-api", os.LookupEnv, mgr.GetLogger().WithName("traces"))
	hooks, err := webhooks(&p.settings, judge, traces.Sender())
	if err != nil {
		return err
	}
	nodes := &handlers{pods: mgr.GetClient()}
	api := subresource.New(direct, handlerTransport(calling, nodes), subresource.Maintenance{
		Settings: p.settings.Get, Image: p.options.guestfsImage,
	})
	metrics.Registry.MustRegister(append(api.Collectors(metricsserver.Readiness(p.ready)), lifetimes)...)
	turns := newRoom()
	sent := turns.entrance(bodies{}, smallBody)
	groups := []server.Group{webhookAPI(hooks, turns)}
	for _, version := range subresource.GroupVersions {
		groups = append(groups, server.Group{GroupVersion: version, API: sent.inTurn(api), Resources: api.Resources(), Operations: api.Operations()})
	}
	tokens := upload.NewTokens(direct)
	groups = append(groups, server.Group{GroupVersion: upload.GroupVersion, API: sent.inTurn(tokens), Resources: tokens.Resources(), Operations: tokens.Operations()})
	refusing, registrations := refusals()
	groups = append(groups, refusing...)
	registrations = append(registrations, registration.Groups{Versions: []schema.GroupVersion{upload.GroupVersion}})
	serve := manager.RunnableFunc(func(ctx context.Context) error {
		return p.serve(ctx, serving, groups)
	})
	follow := &process.Follower{Cache: mgr.GetCache(), Settings: &clusterconfig.Watched{Home: clusterconfig.Namespace, Current: &p.settings, Changed: p.follow}}
	parts := []manager.Runnable{serving, calling, follow, serve, manager.RunnableFunc(traces.Run)}
	for _, part := range append(parts, p.uploads(clientset, direct, serving)...) {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("adding a part of virt-api: %w", err)
		}
	}
	return errors.Join(nodesigner.Add(mgr), registration.Add(mgr, apiService, registrations...))
}

func refusals() ([]server.Group, []registration.Groups) {
	var groups []server.Group
	var registrations []registration.Groups
	for _, together := range [][]notserved.Group{notserved.Exports, notserved.Templates} {
		registered := registration.Groups{Yield: true}
		for _, group := range together {
			registered.Versions = append(registered.Versions, group.GroupVersions()...)
			for _, version := range group.GroupVersions() {
				groups = append(groups, server.Group{GroupVersion: version, API: group.Handler(), Resources: group.Resources()})
			}
		}
		registrations = append(registrations, registered)
	}
	return groups, registrations
}

func (p *served) follow(s clusterconfig.Settings) {
	process.SetVerbosity(s.Verbosity.API)
	p.pace.Set(s.Rates.API)
	p.webhookPace.Set(s.Rates.Webhook)
}

func (p *served) uploads(clientset kubernetes.Interface, direct client.Client, serving *certs.Source) []manager.Runnable {
	calling := certs.NewSource(clientset, certs.UploadProxy())
	proxy := upload.NewProxy(direct, calling.ClientConfigFor)
	serve := manager.RunnableFunc(func(ctx context.Context) error {
		if !ready(ctx, serving) || !ready(ctx, calling) {
			return nil
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.options.uploadAddress)
		if err != nil {
			return fmt.Errorf("listening on %s: %w", p.options.uploadAddress, err)
		}
		return proxy.Serve(ctx, listener, serving.ServerConfig())
	})
	return []manager.Runnable{calling, serve}
}

func ready(ctx context.Context, identity *certs.Source) bool {
	select {
	case <-identity.Ready():
		return true
	case <-ctx.Done():
		return false
	}
}

// handlerTransport calls virt-handlers with mutual TLS. Their certificates name the node (nodecert.DNSName), so that no
// other node can answer. Streams are upgraded from HTTP/1.1.
func handlerTransport(identity *certs.Source, nodes *handlers) http.RoundTripper {
	return &http.Transport{
		TLSClientConfig:     identity.ClientConfig(),
		TLSHandshakeTimeout: 5 * time.Second,
		DialContext:         nodes.Dial,
		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 4,
		// A node may have been taken over.
		MaxResponseHeaderBytes: 16 << 10,
	}
}

func (p *served) serve(ctx context.Context, identity *certs.Source, groups []server.Group) error {
	if !ready(ctx, identity) {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.options.address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", p.options.address, err)
	}
	return server.Run(ctx, server.Config{
		Listener:    listener,
		Cluster:     p.config,
		Kubeconfig:  p.options.kubeconfig,
		Certificate: identity,
		Groups:      groups,
		Serving:     func() { close(p.serving) },
	})
}
