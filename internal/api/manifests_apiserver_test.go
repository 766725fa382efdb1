//go:build apiserver

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
	"drydock.dev/drydock/test/corpus"
)

// otherPeoples has other people's manifests, if they are beside the checkout.
const otherPeoples = "../../../shared/manifests"

// othersAccepted is the minimal number of them that must be accepted completely.
const othersAccepted = 78

// verdict is the API server's answer to a manifest.
type verdict struct {
	refusals, warnings []string
}

// kubectl applies with strict validation and warnings.
type judge struct {
	client    client.Client
	namespace string

	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader implements [rest.WarningHandler].
func (j *judge) HandleWarningHeader(_ int, _ string, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.warnings = append(j.warnings, text)
}

func (w *world) judge() *judge {
	w.t.Helper()
	j := &judge{namespace: w.newNamespace()}
	config := rest.CopyConfig(w.config)
	config.WarningHandler = j
	c, err := client.New(config, client.Options{Scheme: w.admin.Scheme()})
	must(w.t, err)
	j.client = client.WithFieldValidation(c, metav1.FieldValidationStrict)
	return j
}

// of applies objects in their order. It creates the objects to which others refer, and removes them at the end, so that
// they do not help other files; the rest is a dry run.
func (j *judge) of(t *testing.T, objects []*unstructured.Unstructured) verdict {
	t.Helper()
	j.warnings = nil
	var v verdict
	for _, object := range objects {
		j.moveHere(object)
		var options []client.CreateOption
		if !referredTo(object) {
			options = append(options, client.DryRunAll)
		}
		err := j.client.Create(t.Context(), object, options...)
		if err == nil && referredTo(object) {
			defer remove(t, j.client, object)
		}
		if err != nil {
			v.refusals = append(v.refusals, fmt.Sprintf("%s %s: %s", object.GetKind(), object.GetName(), sentence(err)))
		}
		if unanswered(err) {
			t.Errorf("%s %s was not judged: %v", object.GetKind(), object.GetName(), err)
		}
	}
	v.warnings = slices.Clone(j.warnings)
	return v
}

// remove deletes an object, with the finalizers that a controller would remove.
func remove(t *testing.T, c client.Client, object *unstructured.Unstructured) {
	t.Helper()
	if held := object.DeepCopy(); len(object.GetFinalizers()) > 0 {
		object.SetFinalizers(nil)
		must(t, c.Patch(t.Context(), object, client.MergeFrom(held)))
	}
	must(t, client.IgnoreNotFound(c.Delete(t.Context(), object, client.GracePeriodSeconds(0))))
}

// unanswered reports whether an error says nothing about the object.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !meta.IsNoMatchError(err) &&
		(!errors.As(err, &status) || apierrors.IsInternalError(err) || apierrors.IsAlreadyExists(err))
}

// referredTo reports whether admission reads objects of this kind when it judges others.
func referredTo(object *unstructured.Unstructured) bool {
	group := object.GroupVersionKind().Group
	return group == "instancetype.kubevirt.io" || group == "" || group == "scheduling.k8s.io"
}

// moveHere moves an object and its references into the judge's namespace.
func (j *judge) moveHere(object *unstructured.Unstructured) {
	was := cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)
	object.SetNamespace(j.namespace)
	templates, _, _ := unstructured.NestedSlice(object.Object, "spec", "dataVolumeTemplates")
	for _, template := range templates {
		metadata, _, _ := unstructured.NestedMap(template.(map[string]any), "metadata")
		if metadata["namespace"] == was {
			metadata["namespace"] = j.namespace
			template.(map[string]any)["metadata"] = metadata
		}
	}
	if len(templates) > 0 {
		_ = unstructured.SetNestedSlice(object.Object, templates, "spec", "dataVolumeTemplates")
	}
}

// verdicts judges files by their names, under a KubeVirt object with the network bindings of clusters that serve them.
// Files with a KubeVirt object come before it, because there can be only one.
func (w *world) verdicts(t *testing.T, files map[string][]*unstructured.Unstructured) map[string]verdict {
	t.Helper()
	w.serveDataVolumes(t)
	w.makeCommonTypes(t)
	judge := w.judge()
	verdicts := map[string]verdict{}
	isKubeVirt := func(o *unstructured.Unstructured) bool { return o.GetKind() == "KubeVirt" }
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if slices.ContainsFunc(files[name], isKubeVirt) {
			verdicts[name] = judge.of(t, files[name])
		}
	}
	w.registerBindings(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, judged := verdicts[name]; judged {
			continue
		}
		removeReferred := w.makeReferred(t, name, judge.namespace)
		verdicts[name] = judge.of(t, files[name])
		removeReferred()
	}
	return verdicts
}

// serveDataVolumes applies the definitions that virt-controller makes at runtime, and that stay as they would (decision
// 123).
func (w *world) serveDataVolumes(t *testing.T) {
	t.Helper()
	paths, err := filepath.Glob("../controller/cdi/crd/*.yaml")
	must(t, err)
	for _, path := range paths {
		for _, definition := range manifests(t, path) {
			must(t, w.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(definition),
				client.FieldOwner("api-test"), client.ForceOwnership))
		}
	}
	w.eventually(t, "DataVolumes to be served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(cdiv1.SchemeGroupVersion.WithKind("DataVolumeList"))
		return w.admin.List(t.Context(), list, client.InNamespace(w.namespace))
	})
}

// referredBy has, by file name, the objects to which a file's manifests refer and that it lacks. Without a namespace
// they are in the judge's.
var referredBy = map[string]string{
	"kubevirtio-blog-instancetypes-fedora.yaml": `
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata: {name: cmedium}
spec: {cpu: {guest: 1}, memory: {guest: 1Gi}}
---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachinePreference
metadata: {name: fedora}
spec: {devices: {preferredDiskBus: virtio}}`,
	"userguide-preference-override.yaml": `
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachinePreference
metadata: {name: example-preference-disk-virtio}
spec: {devices: {preferredDiskBus: virtio}}`,
	"userguide-instancetype-infer.yaml": `
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata:
  name: cirros-datasource
  namespace: default
  labels: {instancetype.kubevirt.io/default-instancetype: u1.nano, instancetype.kubevirt.io/default-preference: cirros}
spec: {source: {pvc: {namespace: default, name: cirros}}}`,
	"userguide-live-migration-job.yaml": `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vmi-fedora}
spec: {domain: {devices: {}, memory: {guest: 64Mi}}}`,
}

// makeReferred makes the objects to which a file's manifests refer; removeReferred removes them.
func (w *world) makeReferred(t *testing.T, file, namespace string) (removeReferred func()) {
	t.Helper()
	objects := objectsOf(t, file, []byte(referredBy[file]))
	for _, object := range objects {
		object.SetNamespace(cmp.Or(object.GetNamespace(), namespace))
		must(t, w.admin.Create(t.Context(), object))
		if object.GetKind() == "VirtualMachineInstance" {
			pending := object.DeepCopy()
			must(t, unstructured.SetNestedField(object.Object, string(v1.Running), "status", "phase"))
			must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), object, client.MergeFrom(pending)))
		}
	}
	return func() {
		for _, object := range objects {
			remove(t, w.admin, object)
		}
	}
}

// makeCommonTypes makes virt-controller's types and preferences.
func (w *world) makeCommonTypes(t *testing.T) {
	t.Helper()
	var all []client.Object
	for _, instancetype := range commontypes.Instancetypes() {
		all = append(all, instancetype)
	}
	for _, preference := range commontypes.Preferences() {
		all = append(all, preference)
	}
	for _, object := range all {
		must(t, client.IgnoreAlreadyExists(w.admin.Create(t.Context(), object)))
		t.Cleanup(func() { _ = w.admin.Delete(context.WithoutCancel(t.Context()), object) })
	}
}

// registerBindings registers the network bindings of others' manifests in the cluster, and waits until admission knows
// them.
func (w *world) registerBindings(t *testing.T) {
	t.Helper()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: clusterconfig.Name}}
	kv.Spec.Configuration.NetworkConfiguration = &v1.NetworkConfiguration{Binding: map[string]v1.InterfaceBindingPlugin{
		"l2bridge": {DomainAttachmentType: v1.ManagedTap, Migration: &v1.InterfaceBindingMigration{}},
		"macvtap":  {DomainAttachmentType: v1.Tap},
		"passt":    {DomainAttachmentType: v1.ManagedTap},
	}}
	must(t, w.admin.Create(t.Context(), kv))
	t.Cleanup(func() { _ = w.admin.Delete(context.WithoutCancel(t.Context()), kv) })
	vm := w.vm("bound")
	must(t, unstructured.SetNestedSlice(vm.Object, []any{map[string]any{"name": "n", "binding": map[string]any{"name": "l2bridge"}}},
		"spec", "template", "spec", "domain", "devices", "interfaces"))
	must(t, unstructured.SetNestedSlice(vm.Object, []any{map[string]any{"name": "n", "pod": map[string]any{}}},
		"spec", "template", "spec", "networks"))
	w.eventually(t, "the bindings to be known", func() error {
		return w.admin.Create(t.Context(), vm.DeepCopy(), client.DryRunAll)
	})
}

// ours compares the API server's answer to each manifest of the corpus with the expected one.
func (w *world) ours(t *testing.T) {
	all, err := corpus.All()
	must(t, err)
	files := map[string][]*unstructured.Unstructured{}
	for _, m := range all {
		files[m.Name] = objectsOf(t, m.Name, m.Text)
	}
	verdicts := w.verdicts(t, files)
	for _, m := range all {
		v := verdicts[m.Name]
		said := slices.Concat(v.refusals, v.warnings)
		if got := v.kind(); got != m.Verdict {
			t.Errorf("%s is %s, want %s: %s", m.Name, got, m.Verdict, strings.Join(said, "\n"))
			continue
		}
		for _, part := range m.Says {
			if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, part) }) {
				t.Errorf("%s: nothing says %q:\n%s", m.Name, part, strings.Join(said, "\n"))
			}
		}
		if m.Verdict == corpus.Warned && len(v.warnings) != len(m.Says) {
			t.Errorf("%s: there are %d warnings, want %d:\n%s", m.Name, len(v.warnings), len(m.Says), strings.Join(said, "\n"))
		}
	}
}

// kind is the verdict in the corpus's word.
func (v verdict) kind() corpus.Verdict {
	switch {
	case len(v.refusals) > 0:
		return corpus.Refused
	case len(v.warnings) > 0:
		return corpus.Warned
	}
	return corpus.Accepted
}

func (w *world) others(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(otherPeoples, "*.yaml"))
	must(t, err)
	if len(paths) == 0 {
		t.Skipf("no manifests in %s", otherPeoples)
	}
	files := map[string][]*unstructured.Unstructured{}
	for _, path := range paths {
		files[filepath.Base(path)] = manifests(t, path)
	}
	verdicts := w.verdicts(t, files)
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(verdicts)) {
		if refusals := verdicts[name].refusals; len(refusals) > 0 {
			refused = append(refused, name+"\n    "+strings.Join(refusals, "\n    "))
		}
	}
	accepted := len(files) - len(refused)
	t.Logf("accepted %d of %d manifests of others, %d of them beside objects that this test makes for them and %d without something that they refer to, refused:\n%s",
		accepted, len(files), len(referredBy), incomplete(t, paths, verdicts), strings.Join(refused, "\n"))
	if accepted < othersAccepted {
		t.Errorf("accepted %d of %d manifests of others, want at least %d", accepted, len(files), othersAccepted)
	}
}

// incomplete counts the accepted files that refer to objects that neither they nor this test have: users have to make
// those, or nothing starts.
func incomplete(t *testing.T, paths []string, verdicts map[string]verdict) int {
	t.Helper()
	count := 0
	for _, path := range paths {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		must(t, err)
		missing, err := corpus.Missing(text)
		must(t, err)
		if len(missing) > 0 && len(verdicts[name].refusals) == 0 && referredBy[name] == "" {
			count++
		}
	}
	return count
}
