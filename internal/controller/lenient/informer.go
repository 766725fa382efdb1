package lenient

import (
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// NewInformer is cache.NewSharedIndexInformer's signature.
type NewInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// Informers returns a NewInformer that decodes the given kinds object by object, in all namespaces. The keys are
// kinds of one version each; the values are their resources.
func Informers(config *rest.Config, scheme *runtime.Scheme, kinds map[schema.GroupVersionKind]string) (NewInformer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	ours := map[schema.GroupVersionKind]cache.ListerWatcher{}
	for kind, resource := range kinds {
		source, err := newSource(config, client, scheme, kind.GroupVersion(), resource)
		if err != nil {
			return nil, fmt.Errorf("preparing to watch %s: %w", resource, err)
		}
		ours[kind] = source
	}
	return func(usual cache.ListerWatcher, object runtime.Object, resync time.Duration, by cache.Indexers) cache.SharedIndexInformer {
		if kinds, _, err := scheme.ObjectKinds(object); err == nil && ours[kinds[0]] != nil {
			usual = ours[kinds[0]]
		}
		return cache.NewSharedIndexInformer(usual, object, resync, by)
	}, nil
}

func newSource(config *rest.Config, client *http.Client, scheme *runtime.Scheme, version schema.GroupVersion, resource string) (cache.ListerWatcher, error) {
	report := func(u Unreadable) { klog.Background().WithName("watch").Info(u.String()) }
	ordinary := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.NegotiatedSerializer = Serializer(ordinary, scheme, report)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	from, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	all := cache.NewListWatchFromClient(from, resource, metav1.NamespaceAll, fields.Everything())
	return ListWatch(all, report), nil
}
