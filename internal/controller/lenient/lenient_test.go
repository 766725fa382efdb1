package lenient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// patience bounds every wait of these tests.
const patience = 4 * time.Minute

// kind is a kind that users write and virt-controller watches.
type kind struct {
	schema.GroupVersionKind
	resource string
	// malformed is a part of the object that a loose definition accepts and that fits no Go type.
	malformed map[string]any
}

var kinds = []kind{
	{v1.VirtualMachineGroupVersionKind, "virtualmachines", part("spec", "template", "spec", "terminationGracePeriodSeconds", "soon")},
	{v1.VirtualMachineInstanceGroupVersionKind, "virtualmachineinstances", part("status", "phaseTransitionTimestamps", 7)},
	{v1.VirtualMachineInstanceReplicaSetGroupVersionKind, "virtualmachineinstancereplicasets", part("spec", "replicas", "three")},
	{cdiv1.SchemeGroupVersion.WithKind("DataVolume"), "datavolumes", part("spec", "storage", "resources", "requests", "storage", "1e1.5e")},
	{cdiv1.SchemeGroupVersion.WithKind("DataSource"), "datasources", part("status", "conditions", []any{map[string]any{"lastHeartbeatTime": "2026-01-01 00:00:00"}})},
	{snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot"), "virtualmachinesnapshots", part("status", "creationTime", "2026-01-01 00:00:00")},
	{snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineRestore"), "virtualmachinerestores", part("spec", "patches", 7)},
	{clonev1.VirtualMachineCloneKind, "virtualmachineclones", part("spec", "newMacAddresses", "all")},
	{cdiv1.SchemeGroupVersion.WithKind("CDIConfig"), "cdiconfigs", part("spec", "featureGates", "all")},
}

func part(path ...any) map[string]any {
	value := path[len(path)-1]
	for i := len(path) - 2; i >= 0; i-- {
		value = map[string]any{path[i].(string): value}
	}
	return value.(map[string]any)
}

func (k kind) object(name string, more map[string]any) map[string]any {
	out := map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{
		"name": name, "namespace": "tenant", "uid": name, "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z",
	}}
	for field, value := range more {
		out[field] = value
	}
	return out
}

type apiServer struct {
	kind   kind
	listed []map[string]any
	events chan map[string]any
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		return
	}
	if r.URL.Query().Get("watch") == "" {
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": s.kind.GroupVersion().String(), "kind": s.kind.Kind + "List",
			"metadata": map[string]any{"resourceVersion": "5"}, "items": s.listed})
		return
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-s.events:
			_ = json.NewEncoder(w).Encode(event)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// follow starts an informer of the kind.
func follow(t *testing.T, s *apiServer) (cache.SharedIndexInformer, func() []string) {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, snapshotv1.AddToScheme, clonev1.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var reported []string
	report := func(u Unreadable) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, u.String())
	}
	version := s.kind.GroupVersion()
	client, err := rest.RESTClientFor(&rest.Config{Host: web.URL, APIPath: "/apis", ContentConfig: rest.ContentConfig{
		GroupVersion:         &version,
		NegotiatedSerializer: Serializer(serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}, scheme, report),
	}})
	if err != nil {
		t.Fatal(err)
	}
	example, err := scheme.New(s.kind.GroupVersionKind)
	if err != nil {
		t.Fatal(err)
	}
	all := cache.NewListWatchFromClient(client, s.kind.resource, metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(ListWatch(all, report), example, 0, cache.Indexers{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(t.Context())
	}()
	t.Cleanup(func() {
		web.CloseClientConnections()
		<-ended
	})
	return informer, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), reported...)
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); !condition(); <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func TestAMalformedObjectHidesNoOther(t *testing.T) {
	huge := map[string]any{"annotations": strings.Repeat("a", 1<<20)}
	for _, k := range kinds {
		t.Run(k.Kind, func(t *testing.T) {
			large := k.object("large", nil)
			for field, value := range huge {
				large["metadata"].(map[string]any)[field] = map[string]any{"filler": value}
			}
			server := &apiServer{kind: k, events: make(chan map[string]any),
				listed: []map[string]any{k.object("first", nil), k.object("malformed", k.malformed), large, k.object("last", nil)}}
			informer, reported := follow(t, server)
			await(t, "the list", informer.HasSynced)
			has := func(name string) bool {
				_, found, err := informer.GetStore().GetByKey("tenant/" + name)
				return err == nil && found
			}
			if !has("first") || !has("large") || !has("last") || has("malformed") {
				t.Fatalf("after the list: %v", informer.GetStore().ListKeys())
			}
			if said := reported(); len(said) == 0 || !strings.Contains(said[0], k.Kind+" tenant/malformed can't be read") {
				t.Errorf("reported %q", said)
			}
			server.events <- map[string]any{"type": "ADDED", "object": k.object("another", k.malformed)}
			server.events <- map[string]any{"type": "MODIFIED", "object": k.object("first", k.malformed)}
			server.events <- map[string]any{"type": "MODIFIED", "object": k.object("malformed", nil)}
			await(t, "what follows a malformed object", func() bool { return has("malformed") })
			if has("first") || has("another") || !has("last") {
				t.Errorf("after the watch: %v", informer.GetStore().ListKeys())
			}
		})
	}
}

func TestAReadableObjectWithTheAnnotationIsNoPlaceholder(t *testing.T) {
	object := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{unreadableAnnotation: "forged"}, CreationTimestamp: metav1.Unix(1, 0),
	}}
	if reason, is := placeholderReason(object); is {
		t.Errorf("taken for a placeholder: %q", reason)
	}
}

func TestALongReasonIsCut(t *testing.T) {
	if got := brief(fmt.Errorf("%s", strings.Repeat("ä", mostReason))); len(got) > mostReason+len("…") || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
