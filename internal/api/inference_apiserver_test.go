//go:build apiserver

package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// The claim "labeled" and the DataSource "says" have a default type.
const bearers = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: labeled
  labels: {instancetype.kubevirt.io/default-instancetype: four, instancetype.kubevirt.io/default-instancetype-kind: VirtualMachineInstancetype,
    instancetype.kubevirt.io/default-preference: cores, instancetype.kubevirt.io/default-preference-kind: VirtualMachinePreference}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}, storageClassName: nothing-makes-it}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bare}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}, storageClassName: nothing-makes-it}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: says, labels: {instancetype.kubevirt.io/default-instancetype: four, instancetype.kubevirt.io/default-instancetype-kind: VirtualMachineInstancetype}}
spec: {source: {pvc: {namespace: HERE, name: bare}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: points}
spec: {source: {pvc: {namespace: HERE, name: labeled}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: circle}
spec: {source: {dataSource: {namespace: HERE, name: circle}}}`

// inferred creates VMs that infer their type from a volume.
func (w *world) inferred(t *testing.T) {
	for _, object := range objectsOf(t, "bearers", []byte(strings.ReplaceAll(bearers, "HERE", w.namespace))) {
		object.SetNamespace(w.namespace)
		must(t, w.admin.Create(t.Context(), object))
	}
	const (
		claimed  = `{"name":"root","persistentVolumeClaim":{"claimName":"labeled"}}`
		bare     = `{"name":"root","persistentVolumeClaim":{"claimName":"bare"}}`
		none     = `{"name":"root","persistentVolumeClaim":{"claimName":"none"}}`
		image    = `{"name":"root","containerDisk":{"image":"registry.example.com/a:1"}}`
		template = `{"name":"root","dataVolume":{"name":"made"}}`
		refused  = "spec.instancetype.inferFromVolume: the instance type can't be inferred from the volume root: "
	)
	bareClaim := "the PersistentVolumeClaim " + w.namespace + "/bare has no label instancetype.kubevirt.io/default-instancetype"
	for what, c := range map[string]struct {
		volume, makes string
		ignore        bool
		memory        bool
		// want is the refusal; without it, typed means that the VM gets the type, and kept that it keeps its memory.
		want        string
		typed, kept bool
	}{
		"a claim says it": {volume: claimed, typed: true},
		"a claim says it, and failures are ignored":        {volume: claimed, ignore: true, memory: true, typed: true},
		"a claim says it, and the VM says its memory, too": {volume: claimed, memory: true, want: "spec.template.spec.domain.memory.guest: VM field(s) spec.template.spec.domain.memory.guest conflicts"},
		"a claim says nothing":                             {volume: bare, memory: true, want: refused + bareClaim},
		"a claim says nothing, which is ignored":           {volume: bare, ignore: true, memory: true, kept: true},
		"there is no claim, which is not to be ignored":    {volume: none, ignore: true, memory: true, want: refused + "the PersistentVolumeClaim " + w.namespace + "/none does not exist"},
		"an image can say nothing":                         {volume: image, memory: true, want: "the instance type can't be inferred from the volume root: it is neither a DataVolume nor a claim"},
		"an image can say nothing, which is ignored":       {volume: image, ignore: true, memory: true, kept: true},
		"a copy of a claim that says it":                   {volume: template, makes: `{"source":{"pvc":{"name":"labeled","namespace":"` + w.namespace + `"}},"storage":{}}`, typed: true},
		"a copy of a DataSource that says it":              {volume: template, makes: `{"sourceRef":{"kind":"DataSource","name":"says"},"storage":{}}`, typed: true},
		"a copy of a DataSource of a claim that says it":   {volume: template, makes: `{"sourceRef":{"kind":"DataSource","name":"points"},"storage":{}}`, typed: true},
		"a copy of a claim that says nothing":              {volume: template, makes: `{"source":{"pvc":{"name":"bare","namespace":"` + w.namespace + `"}},"storage":{}}`, memory: true, want: refused + bareClaim},
		"DataSources that point at each other":             {volume: template, makes: `{"sourceRef":{"kind":"DataSource","name":"circle"},"storage":{}}`, memory: true, want: refused},
	} {
		t.Run(what, func(t *testing.T) {
			vm := w.inferring(t, c.volume, c.makes, c.ignore, c.memory)
			err := w.admin.Create(t.Context(), vm, client.DryRunAll)
			if c.want != "" {
				if !apierrors.IsInvalid(err) || !strings.Contains(sentence(err), c.want) {
					t.Errorf("the answer is %v, want %s", err, c.want)
				}
				return
			}
			must(t, err)
			var want any
			if c.typed {
				want = map[string]any{"name": "four", "kind": instancetype.KindType}
			}
			if diff := cmp.Diff(want, vm.Object["spec"].(map[string]any)["instancetype"]); diff != "" {
				t.Errorf("it refers to (-want +got):\n%s", diff)
			}
			if memory := domainOf(vm, "memory"); (memory != nil) != c.kept {
				t.Errorf("the VM's memory is %v", memory)
			}
		})
	}
	t.Run("a preference", w.inferredPreference)
}

// inferring is a VM that infers its type from a volume.
func (w *world) inferring(t *testing.T, volume, makes string, ignore, memory bool) *unstructured.Unstructured {
	t.Helper()
	decoded := func(text string) (out map[string]any) {
		must(t, yaml.Unmarshal([]byte(text), &out))
		return out
	}
	vm := w.vm("inferring")
	unstructured.RemoveNestedField(vm.Object, "spec", "template", "spec", "domain", "resources")
	spec := vm.Object["spec"].(map[string]any)
	matcher := map[string]any{"inferFromVolume": "root"}
	if ignore {
		matcher["inferFromVolumeFailurePolicy"] = "Ignore"
	}
	spec["instancetype"] = matcher
	must(t, unstructured.SetNestedSlice(vm.Object, []any{decoded(volume)}, "spec", "template", "spec", "volumes"))
	if memory {
		must(t, unstructured.SetNestedField(vm.Object, "128Mi", "spec", "template", "spec", "domain", "memory", "guest"))
	}
	if makes != "" {
		spec["dataVolumeTemplates"] = []any{map[string]any{"metadata": map[string]any{"name": "made"}, "spec": decoded(makes)}}
	}
	return vm
}

// inferredPreference does for a preference what inferred does for a type.
func (w *world) inferredPreference(t *testing.T) {
	for claim, want := range map[string]any{
		"labeled": map[string]any{"name": "cores", "kind": instancetype.KindPreference},
		"bare":    nil,
	} {
		vm := w.inferring(t, `{"name":"root","persistentVolumeClaim":{"claimName":"`+claim+`"}}`, "", true, true)
		spec := vm.Object["spec"].(map[string]any)
		spec["preference"] = spec["instancetype"]
		delete(spec, "instancetype")
		must(t, w.admin.Create(t.Context(), vm, client.DryRunAll))
		if diff := cmp.Diff(want, vm.Object["spec"].(map[string]any)["preference"]); diff != "" {
			t.Errorf("of the claim %s it prefers (-want +got):\n%s", claim, diff)
		}
		if domainOf(vm, "memory") == nil {
			t.Error("a preference took the VM's memory away")
		}
	}
}

// inferredElsewhere infers a type from claims of another namespace, from which the user may not clone. The answer must
// be the same whether such a claim exists or not.
func (w *world) inferredElsewhere(t *testing.T) {
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-test-other-"}}
	must(t, w.admin.Create(t.Context(), other))
	t.Cleanup(func() { _ = w.admin.Delete(context.WithoutCancel(t.Context()), other) })
	labeled := objectsOf(t, "bearers", []byte(bearers))[0]
	labeled.SetNamespace(other.Name)
	must(t, w.admin.Create(t.Context(), labeled))
	must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "inferrer", Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "inferrer"}},
	}))
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "inferrer", Groups: []string{"system:authenticated"}}
	inferrer, err := client.New(config, client.Options{})
	must(t, err)
	want := "spec.instancetype.inferFromVolume: the instance type can't be inferred from the volume root: " +
		"the user may not clone from the namespace " + other.Name
	for _, claim := range []string{"labeled", "none"} {
		elsewhere := `{"pvc":{"namespace":"` + other.Name + `","name":"` + claim + `"}}`
		leads := objectsOf(t, "a DataSource", []byte(`{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataSource","metadata":{"name":"leads-to-`+claim+`"},"spec":{"source":`+elsewhere+`}}`))[0]
		theirs := leads.DeepCopy()
		leads.SetNamespace(w.namespace)
		theirs.SetNamespace(other.Name)
		must(t, w.admin.Create(t.Context(), leads))
		must(t, w.admin.Create(t.Context(), theirs))
		for way, makes := range map[string]string{
			"a copy of it":                         `{"source":` + elsewhere + `,"storage":{}}`,
			"a DataSource of one's own":            `{"sourceRef":{"kind":"DataSource","name":"` + leads.GetName() + `"},"storage":{}}`,
			"a DataSource beside a source":         `{"source":{"pvc":{"namespace":"` + w.namespace + `","name":"bare"}},"sourceRef":{"kind":"DataSource","namespace":"` + other.Name + `","name":"` + leads.GetName() + `"},"storage":{}}`,
			"a DataSource that is over there, too": `{"sourceRef":{"kind":"DataSource","namespace":"` + other.Name + `","name":"` + leads.GetName() + `"},"storage":{}}`,
		} {
			w.notInferred(t, inferrer, "the claim "+claim+" not to be asked by "+way, makes, want)
		}
	}
}

// notInferred checks that a VM with a template of a DataVolume is refused, whether failures are to be ignored or not.
// Other errors in the template must be in the same refusal.
func (w *world) notInferred(t *testing.T, as client.Client, what, makes, want string) {
	t.Helper()
	for _, ignore := range []bool{false, true} {
		vm := w.inferring(t, `{"name":"root","dataVolume":{"name":"made"}}`, makes, ignore, true)
		w.eventually(t, what, func() error {
			err := as.Create(t.Context(), vm.DeepCopy(), client.DryRunAll)
			if apierrors.IsInvalid(err) && strings.Contains(sentence(err), want) {
				return nil
			}
			return fmt.Errorf("the answer is %w", err)
		})
	}
}
