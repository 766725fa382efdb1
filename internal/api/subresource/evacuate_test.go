package subresource

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestCancelEvacuation(t *testing.T) {
	const refused = `Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "vm-cirros": `
	for name, c := range map[string]struct{ marked, node, err string }{
		"one that is marked":                   {"node1", "", ""},
		"one that is marked for that node":     {"node1", "node1", ""},
		"one that is marked for another node":  {"node1", "node2", refused + "VMI is marked for evacuation from node node1, not from node node2"},
		"one that is not marked":               {"", "", refused + "VMI is not marked for evacuation"},
		"one that is not marked, and the node": {"", "node1", refused + "VMI is not marked for evacuation"},
	} {
		vmi := instance(v1.Running)
		vmi.Status.EvacuationNodeName = c.marked
		got := ""
		if err := CancelEvacuation(vmi, c.node); err != nil {
			got = err.Error()
		}
		if got != c.err {
			t.Errorf("%s: %q, want %q", name, got, c.err)
		}
	}
}

// The caller must not notice another's write of the VMI, unless the other cancels, too.
func TestAnEvacuationIsCancelledOfAVMIThatIsBeingWritten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		left  string
		code  int
		tries int
	}{
		"its conditions are":    {"node1", http.StatusAccepted, 2},
		"somebody else cancels": {"", http.StatusConflict, 1},
	} {
		vmi := instance(v1.Running)
		vmi.Namespace, vmi.Status.EvacuationNodeName = "lab", "node1"
		tries := 0
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vmi).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, server client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
				if tries++; tries > 1 {
					return nil
				}
				written := object.DeepCopyObject().(*v1.VirtualMachineInstance)
				written.Status.EvacuationNodeName = c.left
				if err := server.Update(ctx, written); err != nil {
					return err
				}
				return apierrors.NewConflict(schema.GroupResource{Resource: "virtualmachineinstances"}, object.GetName(), nil)
			},
		}).Build()
		w := httptest.NewRecorder()
		path := Root + "v1/namespaces/lab/virtualmachineinstances/" + vmi.Name + "/evacuate/cancel"
		New(cluster, nil, Maintenance{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, path, strings.NewReader("{}")))
		if w.Code != c.code || tries != c.tries {
			t.Errorf("%s: %d after %d tries: %s", name, w.Code, tries, w.Body)
		}
	}
}
