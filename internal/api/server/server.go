// Package server provides virt-api's HTTPS server: a generic Kubernetes API server without storage that delegates
// authentication and authorization to the cluster, with APIs mounted on it. It must not know these APIs.
//
// It does not use the storage interfaces of k8s.io/apiserver: KubeVirt's clients expect other paths, bodies and errors.
package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/version"
)

// Config configures Run.
type Config struct {
	Listener net.Listener
	// Cluster authenticates and authorizes callers. Kubeconfig is its file, "" inside a cluster.
	Cluster    *rest.Config
	Kubeconfig string
	// Certificate must be ready.
	Certificate *certs.Source
	Groups      []Group
	// Serving is called once requests are answered.
	Serving func()
}

// Group is one version of an API group. The first one is preferred.
type Group struct {
	schema.GroupVersion
	// API serves the paths below /apis/<group>/<version>/.
	API       http.Handler
	Resources []metav1.APIResource
	// Operations are methods with their paths for OpenAPI, as patterns of http.ServeMux. Other versions' are ignored.
	Operations []string
	// Caller is the only user who is served, whatever rights others have; "" serves every authorized user.
	Caller string
}

func (g Group) path() string { return "/apis/" + g.String() }

// streams have no end of their own, so no timeout applies to them.
var streams = sets.New("console", "vnc", "portforward")

// longVerbs are the verbs of connections that the API server itself treats as long.
var longVerbs = sets.New("watch", "proxy")

// Run serves until ctx ends and the requests in flight are done.
func Run(ctx context.Context, config Config) error {
	generic, err := config.generic()
	if err != nil {
		return err
	}
	server, err := generic.New("virt-api", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return fmt.Errorf("making the API server: %w", err)
	}
	for _, group := range config.Groups {
		if err := group.install(server); err != nil {
			return err
		}
	}
	discover(server, config.Groups)
	server.AddPostStartHookOrDie("virt-api-serving", func(genericapiserver.PostStartHookContext) error {
		config.Serving()
		return nil
	})
	prepared := server.PrepareRun()
	for _, group := range config.Groups {
		prepared.OpenAPIV3VersionedService.UpdateGroupVersion(strings.TrimPrefix(group.path(), "/"), group.openAPIV3(generic.OpenAPIV3Config.Info))
	}
	return prepared.RunWithContext(ctx)
}

func (c Config) generic() (genericapiserver.CompletedConfig, error) {
	scheme, callers := scheme(c.Groups), newStrangers(c.Listener)
	generic := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(scheme))
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: callers,
		Cert:     certificate{c.Certificate},
		// kube-apiserver's streams are HTTP/1.1 upgrades, and no other call is frequent enough for HTTP/2.
		DisableHTTP2: true,
	}
	// It has no credentials: a token here would be accepted as a privileged caller's.
	generic.LoopbackClientConfig = rest.AnonymousClientConfig(c.Cluster)
	generic.ExternalAddress = c.Listener.Addr().String()
	generic.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString(sets.List(longVerbs)...), sets.NewString(sets.List(streams)...))
	generic.EnableProfiling = false
	generic.RequestTimeout = 30 * time.Second
	namer := openapinamer.NewDefinitionNamer(scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title = "Drydock " + version.Version
	generic.OpenAPIConfig.PostProcessSpec = c.describe
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config.Info.Title = generic.OpenAPIConfig.Info.Title

	authentication := options.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = c.Kubeconfig
	if err := authentication.ApplyTo(&generic.Authentication, generic.SecureServing, generic.OpenAPIConfig); err != nil {
		return genericapiserver.CompletedConfig{}, fmt.Errorf("delegating authentication: %w", err)
	}
	callers.known = frontProxy(generic.Authentication.RequestHeaderConfig)
	generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return callers.guard(genericapiserver.DefaultBuildHandlerChain(api, config))
	}
	authorization := options.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = c.Kubeconfig
	if err := authorization.ApplyTo(&generic.Authorization); err != nil {
		return genericapiserver.CompletedConfig{}, fmt.Errorf("delegating authorization: %w", err)
	}
	return generic.Complete(), nil
}

func (g Group) install(server *genericapiserver.GenericAPIServer) error {
	mux := server.Handler.NonGoRestfulMux
	lister := discovery.APIResourceListerFunc(func() []metav1.APIResource { return g.Resources })
	mux.Handle(g.path(), discovery.NewAPIVersionHandler(server.Serializer, g.GroupVersion, lister))
	mux.HandlePrefix(g.path()+"/", g.Handler())

	resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(g.Resources)
	if err != nil {
		return fmt.Errorf("describing the resources of %s to discovery: %w", g.GroupVersion, err)
	}
	server.AggregatedDiscoveryGroupManager.AddGroupVersion(g.Group,
		apidiscoveryv2.APIVersionDiscovery{
			Version: g.Version, Resources: resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
	return nil
}

// Handler returns the API, restricted to Caller.
func (g Group) Handler() http.Handler {
	if g.Caller == "" {
		return g.API
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller, known := request.UserFrom(r.Context()); !known || caller.GetName() != g.Caller {
			answer.Error(w, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
				Message: fmt.Sprintf("%s answers %s and nobody else", g, g.Caller),
			}})
			return
		}
		g.API.ServeHTTP(w, r)
	})
}

func discover(server *genericapiserver.GenericAPIServer, groups []Group) {
	versions := map[string][]metav1.GroupVersionForDiscovery{}
	for _, g := range groups {
		versions[g.Group] = append(versions[g.Group], metav1.GroupVersionForDiscovery{GroupVersion: g.String(), Version: g.Version})
	}
	for name, served := range versions {
		group := metav1.APIGroup{Name: name, Versions: served, PreferredVersion: served[0]}
		server.DiscoveryGroupManager.AddGroup(group)
		server.Handler.NonGoRestfulMux.Handle("/apis/"+name, discovery.NewAPIGroupHandler(server.Serializer, group))
	}
}

func scheme(groups []Group) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, group := range groups {
		metav1.AddToGroupVersion(s, group.GroupVersion)
	}
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, unversioned)
	s.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}

type certificate struct{ source *certs.Source }

// Name returns the certificate's name for logs.
func (c certificate) Name() string { return certs.APISecret }

// CurrentCertKeyContent returns the newest certificate.
func (c certificate) CurrentCertKeyContent() (cert, key []byte) {
	pair := c.source.Current()
	if pair == nil {
		return nil, nil
	}
	return pair.CertPEM, pair.KeyPEM
}

// AddListener notifies the listener of rotations.
func (c certificate) AddListener(listener dynamiccertificates.Listener) {
	c.source.OnChange(listener.Enqueue)
}
