// Package server makes the HTTPS server of virt-api: a generic Kubernetes API
// server without storage that authenticates and authorizes by asking the
// cluster, with APIs mounted on it.
//
// It must not know what is behind them. See decision 062.
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

// Config is what a Server is made of.
type Config struct {
	Listener net.Listener
	// Cluster reaches the cluster that is asked who a caller is and what it
	// may do; Kubeconfig is the file it came from, empty inside of a cluster.
	Cluster    *rest.Config
	Kubeconfig string
	// Certificate must be ready.
	Certificate *certs.Source
	// Groups are the APIs that are served.
	Groups []Group
	// Serving is called once requests are answered.
	Serving func()
}

// Group is one version of an API group. Of a group's versions the first is preferred.
type Group struct {
	schema.GroupVersion
	// API serves the paths below /apis/<group>/<version>/; Resources are what
	// discovery tells.
	API       http.Handler
	Resources []metav1.APIResource
	// Operations are what OpenAPI tells: methods with their paths, as patterns of http.ServeMux.
	// Those of other versions may be among them.
	Operations []string
	// Caller is the one user who is served, whatever rights others have. Empty means whoever has the right.
	Caller string
}

// path is below which the version's resources are.
func (g Group) path() string { return "/apis/" + g.String() }

// streams are the subresources that have no end of their own, so that no
// timeout applies to them.
var streams = sets.New("console", "vnc", "portforward")

// verbs of connections that the API server itself knows as long.
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

// generic is the configuration of k8s.io/apiserver.
func (c Config) generic() (genericapiserver.CompletedConfig, error) {
	scheme := scheme(c.Groups)
	generic := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(scheme))
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: c.Listener,
		Cert:     certificate{c.Certificate},
		// kube-apiserver's streams are HTTP/1.1 upgrades; nothing else is
		// called often enough to gain by HTTP/2.
		DisableHTTP2: true,
	}
	// Without credentials: a token here would be taken for a privileged caller.
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
	authorization := options.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = c.Kubeconfig
	if err := authorization.ApplyTo(&generic.Authorization); err != nil {
		return genericapiserver.CompletedConfig{}, fmt.Errorf("delegating authorization: %w", err)
	}
	return generic.Complete(), nil
}

// install mounts the group and tells discovery about it.
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

// Handler serves the API to whom it is for.
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

// discover tells discovery about the groups, each with all its versions.
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

// certificate lets the server use a certs.Source.
type certificate struct{ source *certs.Source }

// Name names the certificate in logs.
func (c certificate) Name() string { return certs.APISecret }

// CurrentCertKeyContent is the newest certificate.
func (c certificate) CurrentCertKeyContent() (cert, key []byte) {
	pair := c.source.Current()
	if pair == nil {
		return nil, nil
	}
	return pair.CertPEM, pair.KeyPEM
}

// AddListener has the server told of a rotation.
func (c certificate) AddListener(listener dynamiccertificates.Listener) {
	c.source.OnChange(listener.Enqueue)
}
