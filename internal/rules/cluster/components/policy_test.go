package components

import (
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/authentication/user"

	"drydock.dev/drydock/internal/policytest"
)

// The API server holds virt-controller to this package's decisions by this policy. server.follow judges each plan of
// these tests by it.

var (
	virtController = &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"}
	administrator  = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
)

var workloadPolicy = struct {
	sync.Once
	policy *policytest.Policy
}{}

func loadWorkloadPolicy(t *testing.T) *policytest.Policy {
	t.Helper()
	workloadPolicy.Do(func() {
		workloadPolicy.policy = policytest.Load(t, "../../../../config/rbac/controller-policy.yaml", "virt-controller-workloads")
	})
	if workloadPolicy.policy == nil {
		t.Fatal("there is no policy")
	}
	return workloadPolicy.policy
}

// live returns the present workload.
func (s *server) live() *unstructured.Unstructured {
	s.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.fields.Live())
	if err != nil {
		s.t.Fatalf("reading %s: %v", s.name, err)
	}
	object := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	object.SetGroupVersionKind(s.kind)
	return object
}

// resource returns the resource of the workload's kind.
func (s *server) resource() string { return strings.ToLower(s.kind.Kind) + "s" }

// judged returns the reason why virt-controller may not make this change, or "".
func (s *server) judged(before, after *unstructured.Unstructured) string {
	s.t.Helper()
	return loadWorkloadPolicy(s.t).Answer(s.t, policytest.Write{By: virtController, Resource: s.resource(), Old: before, New: after})
}

// patchedBy returns the workload with a patch that nobody judges.
func (s *server) patchedBy(patch string) *unstructured.Unstructured {
	s.t.Helper()
	before, err := s.live().MarshalJSON()
	must(s.t, err)
	kind := runtime.Object(&appsv1.Deployment{})
	if s.kind.Kind == "DaemonSet" {
		kind = &appsv1.DaemonSet{}
	}
	var text []byte
	if strings.HasPrefix(patch, "[") {
		list, err := jsonpatch.DecodePatch([]byte(patch))
		must(s.t, err)
		text, err = list.Apply(before)
		must(s.t, err)
	} else {
		text, err = strategicpatch.StrategicMergePatch(before, []byte(patch), kind)
		must(s.t, err)
	}
	after := &unstructured.Unstructured{}
	must(s.t, after.UnmarshalJSON(text))
	return after
}

func TestThePolicyGivesVirtControllersTokenNoRightsByPatches(t *testing.T) {
	handler := func(fields string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"virt-handler",` + fields + `}]}}}}`
	}
	of := map[string]map[string]string{API: rights(), Controller: {}, Handler: {
		"another image":               handler(`"image":"example.com/mine:1"`),
		"another command":             handler(`"command":["sh"]`),
		"arguments":                   handler(`"args":["--launcher-socket=/x"]`),
		"an argument beside a flag":   handler(`"args":["--pprof-addr=:6060","--kubelet-dir=/x"]`),
		"a flag of another component": handler(`"args":["--max-attachment-pods=3"]`),
		"a variable that loads":       handler(`"env":[{"name":"LD_PRELOAD","value":"/x.so"}]`),
		"another node's name":         handler(`"env":[{"name":"NODE_NAME","value":"control-plane","valueFrom":null}]`),
		"no variable":                 handler(`"env":[{"$patch":"delete","name":"POD_IP"}]`),
		"another folder of the node":  `{"spec":{"template":{"spec":{"volumes":[{"name":"kubelet","hostPath":{"path":"/"}}]}}}}`,
		"another image of the probe":  `{"spec":{"template":{"spec":{"initContainers":[{"name":"probe-node","image":"example.com/mine:1"}]}}}}`,
		"a flag for the probe":        `{"spec":{"template":{"spec":{"initContainers":[{"name":"probe-node","args":["--pprof-addr=:6060"]}]}}}}`,
		"the probe's user":            `{"spec":{"template":{"spec":{"initContainers":[{"name":"probe-node","securityContext":{"runAsUser":7}}]}}}}`,
		"no security context":         `[{"op":"remove","path":"/spec/template/spec/containers/0/securityContext"}]`,
		"no probe":                    `[{"op":"remove","path":"/spec/template/spec/containers/0/livenessProbe"}]`,
		"no container but one":        `[{"op":"remove","path":"/spec/template/spec/initContainers"}]`,
		"SELinux":                     `{"spec":{"template":{"spec":{"securityContext":{"seLinuxOptions":{"type":"spc_t"}}}}}}`,
		"the pods are nobody's":       `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`,
		"an owner":                    `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}]}}`,
		"a finalizer":                 `{"metadata":{"finalizers":["a/b"]}}`,
	}}
	for component, patches := range of {
		s := newServer(t, component)
		before := s.live()
		for name, patch := range patches {
			after := s.patchedBy(patch)
			if said := s.judged(before, after); said == "" {
				t.Errorf("%s: %s is let through", component, name)
			}
			by := policytest.Write{By: administrator, Resource: s.resource(), Old: before, New: after}
			if said := loadWorkloadPolicy(t).Answer(t, by); said != "" {
				t.Errorf("%s: an administrator's patch, %s, is answered %q", component, name, said)
			}
		}
		for name, write := range map[string]policytest.Write{
			"it is made":            {Resource: s.resource(), New: before},
			"it is deleted":         {Resource: s.resource(), Old: before},
			"its status is written": {Resource: s.resource() + "/status", Old: before, New: before},
			"another is changed":    {Resource: s.resource(), Old: named(before, "other"), New: named(before, "other")},
		} {
			write.By = virtController
			if said := loadWorkloadPolicy(t).Answer(t, write); said == "" {
				t.Errorf("%s: %s", component, name)
			}
		}
	}
}

func named(object *unstructured.Unstructured, name string) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetName(name)
	return object
}

// A workload that an administrator has scaled to zero must not stop virt-controller from following the KubeVirt object.
func TestThePolicyLetsThroughWhatItDoesNotJudge(t *testing.T) {
	s := newServer(t, API)
	off := s.patchedBy(`{"spec":{"replicas":0}}`)
	after := off.DeepCopy()
	must(t, unstructured.SetNestedField(after.Object, string(corev1.PullAlways), "metadata", "annotations", "a"))
	if said := s.judged(off, after); said != "" {
		t.Errorf("answered %q", said)
	}
}
