// Package server makes the HTTPS server of virt-api: a generic Kubernetes API
// server without storage that authenticates and authorizes by asking the
// cluster, with the subresource API and the admission webhooks mounted on it.
//
// It must not know what is behind either.
package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/version"
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
	// API serves the group; Resources are what discovery tells.
	API          http.Handler
	GroupVersion schema.GroupVersion
	Resources    []metav1.APIResource
	// Webhooks by path. kube-apiserver calls them without credentials.
	Webhooks map[string]http.Handler
	// Serving is called once requests are answered.
	Serving func()
}

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
	if err := config.installAPI(server); err != nil {
		return err
	}
	for path, webhook := range config.Webhooks {
		server.Handler.NonGoRestfulMux.Handle(path, webhook)
	}
	server.AddPostStartHookOrDie("virt-api-serving", func(genericapiserver.PostStartHookContext) error {
		config.Serving()
		return nil
	})
	return server.PrepareRun().RunWithContext(ctx)
}

// generic is the configuration of k8s.io/apiserver.
func (c Config) generic() (genericapiserver.CompletedConfig, error) {
	codecs := codecs(c.GroupVersion)
	generic := genericapiserver.NewRecommendedConfig(codecs)
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
	namer := openapinamer.NewDefinitionNamer(scheme(c.GroupVersion))
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title = "Drydock " + version.Version
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config.Info.Title = generic.OpenAPIConfig.Info.Title

	authentication := options.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = c.Kubeconfig
	if err := authentication.ApplyTo(&generic.Authentication, generic.SecureServing, generic.OpenAPIConfig); err != nil {
		return genericapiserver.CompletedConfig{}, fmt.Errorf("delegating authentication: %w", err)
	}
	authorization := options.NewDelegatingAuthorizationOptions().WithAlwaysAllowPaths(c.webhookPaths()...)
	authorization.RemoteKubeConfigFile = c.Kubeconfig
	if err := authorization.ApplyTo(&generic.Authorization); err != nil {
		return genericapiserver.CompletedConfig{}, fmt.Errorf("delegating authorization: %w", err)
	}
	return generic.Complete(), nil
}

func (c Config) webhookPaths() []string {
	paths := make([]string, 0, len(c.Webhooks))
	for path := range c.Webhooks {
		paths = append(paths, path)
	}
	return paths
}

// installAPI mounts the group and tells discovery about it.
func (c Config) installAPI(server *genericapiserver.GenericAPIServer) error {
	mux := server.Handler.NonGoRestfulMux
	versionPath := "/apis/" + c.GroupVersion.String()
	lister := discovery.APIResourceListerFunc(func() []metav1.APIResource { return c.Resources })
	mux.Handle(versionPath, discovery.NewAPIVersionHandler(server.Serializer, c.GroupVersion, lister))
	mux.HandlePrefix(versionPath+"/", c.API)

	preferred := metav1.GroupVersionForDiscovery{
		GroupVersion: c.GroupVersion.String(), Version: c.GroupVersion.Version,
	}
	group := metav1.APIGroup{
		Name:             c.GroupVersion.Group,
		Versions:         []metav1.GroupVersionForDiscovery{preferred},
		PreferredVersion: preferred,
	}
	server.DiscoveryGroupManager.AddGroup(group)
	mux.Handle("/apis/"+c.GroupVersion.Group, discovery.NewAPIGroupHandler(server.Serializer, group))

	resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(c.Resources)
	if err != nil {
		return fmt.Errorf("describing the resources to discovery: %w", err)
	}
	server.AggregatedDiscoveryGroupManager.AddGroupVersion(c.GroupVersion.Group,
		apidiscoveryv2.APIVersionDiscovery{
			Version: c.GroupVersion.Version, Resources: resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
	return nil
}

func scheme(gv schema.GroupVersion) *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, gv)
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, unversioned)
	s.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}

func codecs(gv schema.GroupVersion) serializer.CodecFactory {
	return serializer.NewCodecFactory(scheme(gv))
}

// certificate lets the server follow a certs.Source.
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
