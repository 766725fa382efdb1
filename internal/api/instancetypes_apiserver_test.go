//go:build apiserver

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/rules/vm/instancetype"
)

// typesOfTheTest are the types and preferences of the test's VMs, in its namespace.
const typesOfTheTest = `
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata: {name: four}
spec: {cpu: {guest: 4}, memory: {guest: 192Mi}}
---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachinePreference
metadata: {name: cores}
spec: {cpu: {preferredCPUTopology: cores}, devices: {preferredDiskBus: scsi}, machine: {preferredMachineType: pc-q35-6.2}}`

// instancetypes creates VMs with instance types and preferences.
func (w *world) instancetypes(t *testing.T) {
	w.serveDataVolumes(t)
	for _, object := range objectsOf(t, "types", []byte(typesOfTheTest)) {
		object.SetNamespace(w.namespace)
		must(t, w.admin.Create(t.Context(), object))
	}
	t.Run("a VM stays as it is written", w.typedVM)
	t.Run("a VM is shown expanded", w.expandedVM)
	t.Run("a conflict is refused by its path", w.typedConflict)
	t.Run("types of which no VM can be made are refused", w.unusableTypes)
	t.Run("a volume says what it is for", w.inferred)
	t.Run("a user learns nothing of other namespaces", w.inferredElsewhere)
	t.Run("common types with common preferences", w.commonPairs)
}

// typed is a VM with the type and the preference of the test.
func (w *world) typed(name string) *unstructured.Unstructured {
	vm := w.vm(name)
	unstructured.RemoveNestedField(vm.Object, "spec", "template", "spec", "domain", "resources")
	spec := vm.Object["spec"].(map[string]any)
	spec["instancetype"] = map[string]any{"name": "four", "kind": "virtualmachineinstancetype"}
	spec["preference"] = map[string]any{"name": "cores", "kind": instancetype.KindPreference}
	return vm
}

// domainOf reads a part of the guest's machine.
func domainOf(vm *unstructured.Unstructured, part ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(vm.Object, append([]string{"spec", "template", "spec", "domain"}, part...)...)
	return value
}

// A VM's kinds must stay as written, the preferred machine must be pinned, and nothing else may be added.
func (w *world) typedVM(t *testing.T) {
	vm := w.typed("typed")
	must(t, w.admin.Create(t.Context(), vm))
	want := map[string]any{"name": "four", "kind": "virtualmachineinstancetype"}
	if diff := cmp.Diff(want, vm.Object["spec"].(map[string]any)["instancetype"]); diff != "" {
		t.Errorf("it refers to (-want +got):\n%s", diff)
	}
	if cpu, memory, disks := domainOf(vm, "cpu"), domainOf(vm, "memory"), domainOf(vm, "devices"); cpu != nil || memory != nil || len(disks.(map[string]any)) != 0 {
		t.Errorf("the template was filled in: %v", domainOf(vm))
	}
	if machine := domainOf(vm, "machine", "type"); machine != "pc-q35-6.2" {
		t.Errorf("the machine type is %v", machine)
	}
	missing := w.typed("untyped")
	must(t, unstructured.SetNestedField(missing.Object, "none", "spec", "instancetype", "name"))
	must(t, w.admin.Create(t.Context(), missing, client.DryRunAll))
	must(t, unstructured.SetNestedField(missing.Object, "1Gi", "spec", "template", "spec", "domain", "memory", "guest"))
	if err := w.admin.Create(t.Context(), missing, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(sentence(err), "spec.template.spec.domain.memory.guest") {
		t.Errorf("memory beside a type that is not there: %v", err)
	}
	impossible := w.typed("untyped")
	must(t, unstructured.SetNestedField(impossible.Object, "U1.Medium", "spec", "instancetype", "name"))
	if err := w.admin.Create(t.Context(), impossible, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(sentence(err), "no object can have that name") {
		t.Errorf("a type that can never be there: %v", err)
	}
}

// expandedVM expands the VM of typedVM, and one that exists only in the request.
func (w *world) expandedVM(t *testing.T) {
	given, err := json.Marshal(w.typed("given"))
	must(t, err)
	all := "/apis/subresources.kubevirt.io/%s/namespaces/" + w.namespace
	for _, version := range []string{"v1", "v1alpha3"} {
		asked := map[string]string{}
		asked["typed"], err = w.call(http.MethodGet, fmt.Sprintf(all, version)+"/virtualmachines/typed/expand-spec", "")
		must(t, err)
		asked["given"], err = w.call(http.MethodPut, fmt.Sprintf(all, version)+"/expand-vm-spec", string(given))
		must(t, err)
		for name, text := range asked {
			vm := &v1.VirtualMachine{}
			must(t, json.Unmarshal([]byte(text), vm))
			domain := vm.Spec.Template.Spec.Domain
			if vm.Name != name || vm.Spec.Instancetype != nil || vm.Spec.Preference != nil || domain.CPU == nil || domain.CPU.Cores != 4 ||
				domain.Memory.Guest.String() != "192Mi" || len(domain.Devices.Disks) != 1 || domain.Devices.Disks[0].Disk.Bus != v1.DiskBusSCSI {
				t.Errorf("%s by %s: %s", name, version, text)
			}
		}
	}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "given"}, &v1.VirtualMachine{}); !apierrors.IsNotFound(err) {
		t.Errorf("the VM of the request was stored: %v", err)
	}
	for what, c := range map[string]struct{ body, want string }{
		"nothing":              {"", "the request has no body; it must be a VirtualMachine"},
		"another namespace's":  {`{"metadata":{"namespace":"default"},"spec":{}}`, "VM namespace must be empty or " + w.namespace},
		"a type of nobody":     {`{"spec":{"instancetype":{"name":"none"},"template":{"spec":{}}}}`, `spec.instancetype: Not found: "none": Failure to find`},
		"a volume, not asked":  {`{"spec":{"instancetype":{"inferFromVolume":"root"},"template":{"spec":{}}}}`, "spec.instancetype.inferFromVolume"},
		"a conflict":           {strings.Replace(string(given), `"domain":{`, `"domain":{"memory":{"guest":"1Gi"},`, 1), "spec.template.spec.domain.memory.guest: Forbidden"},
		"a revision of nobody": {`{"spec":{"instancetype":{"name":"four","revisionName":"none"},"template":{"spec":{}}}}`, "spec.instancetype.revisionName"},
	} {
		_, err := w.call(http.MethodPut, fmt.Sprintf(all, "v1")+"/expand-vm-spec", c.body)
		if !apierrors.IsBadRequest(err) || !strings.Contains(sentence(err), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

// typedConflict creates VMs that set the same fields as their type.
func (w *world) typedConflict(t *testing.T) {
	const domain = "spec.template.spec.domain."
	for path, patch := range map[string]string{
		domain + "memory.guest":              `{"memory":{"guest":"192Mi"}}`,
		domain + "resources.requests.memory": `{"resources":{"requests":{"memory":"192Mi"}}}`,
		domain + "cpu.sockets":               `{"cpu":{"sockets":4}}`,
		domain + "resources.limits.cpu":      `{"resources":{"limits":{"cpu":"4"}}}`,
	} {
		patch = `{"spec":{"template":{"spec":{"domain":` + patch + `}}}}`
		stored := &v1.VirtualMachine{}
		stored.Namespace, stored.Name = w.namespace, "typed"
		err := w.admin.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(patch)))
		want := path + ": VM field(s) " + path + " conflicts with selected instance type: the instance type four (VirtualMachineInstancetype) sets it"
		if !apierrors.IsInvalid(err) || !strings.Contains(sentence(err), want) {
			t.Errorf("a VM that is there: %v\nwant %s", err, want)
		}
	}
	both := w.typed("both")
	must(t, unstructured.SetNestedField(both.Object, map[string]any{"cores": int64(2), "threads": int64(2)}, "spec", "template", "spec", "domain", "cpu"))
	err := w.admin.Create(t.Context(), both)
	for _, path := range []string{domain + "cpu.cores: VM field(s) spec.template.spec.domain.cpu.cores conflicts", domain + "cpu.threads: VM field(s) spec.template.spec.domain.cpu.threads conflicts"} {
		if !apierrors.IsInvalid(err) || !strings.Contains(sentence(err), path) {
			t.Errorf("a new VM: %v, want %s", err, path)
		}
	}
}

// unusableTypes must be refused of all four kinds, also as updates.
func (w *world) unusableTypes(t *testing.T) {
	for kind, c := range map[string]struct{ spec, want string }{
		instancetype.KindType:              {`{cpu: {guest: 1}, memory: {guest: -1Gi}}`, `spec.memory.guest: Invalid value: "-1Gi": must be an amount of memory`},
		instancetype.KindClusterType:       {`{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 101}}`, "spec.memory.overcommitPercent: Invalid value: 101"},
		instancetype.KindPreference:        {`{cpu: {preferredCPUTopology: pile}}`, `spec.cpu.preferredCPUTopology: Unsupported value: "pile"`},
		instancetype.KindClusterPreference: {`{firmware: {preferredUseBios: true, preferredEfi: {}}}`, "spec.firmware.preferredUseBios: a guest has either a BIOS or EFI"},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(instancetypev1.SchemeGroupVersion.WithKind(kind))
		object.SetName("unusable")
		if kind == instancetype.KindType || kind == instancetype.KindPreference {
			object.SetNamespace(w.namespace)
		}
		var spec map[string]any
		must(t, yaml.Unmarshal([]byte(c.spec), &spec))
		object.Object["spec"] = spec
		if err := w.admin.Create(t.Context(), object, client.DryRunAll); err == nil || !strings.Contains(sentence(err), c.want) {
			t.Errorf("a %s: %v, want %s", kind, err, c.want)
		}
	}
	four := &instancetypev1.VirtualMachineInstancetype{}
	four.Namespace, four.Name = w.namespace, "four"
	err := w.admin.Patch(t.Context(), four, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cpu":{"maxSockets":0}}}`)))
	if err == nil || !strings.Contains(sentence(err), "spec.cpu.maxSockets") {
		t.Errorf("a type that becomes unusable: %v", err)
	}
}

// commonPairs sends the pairs whose VMIs are in the rules' testdata to the API server.
func (w *world) commonPairs(t *testing.T) {
	w.makeCommonTypes(t)
	files, err := filepath.Glob("../rules/vm/instancetype/testdata/pairs/*+plain.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("finding the pairs: %v, %d files", err, len(files))
	}
	accepted := 0
	for _, file := range files {
		pair := strings.Split(strings.TrimSuffix(filepath.Base(file), "+plain.yaml"), "+")
		vm := w.vm("pair")
		unstructured.RemoveNestedField(vm.Object, "spec", "template", "spec", "domain", "resources")
		for i, field := range []string{"instancetype", "preference"} {
			if pair[i] != "none" {
				must(t, unstructured.SetNestedField(vm.Object, pair[i], "spec", field, "name"))
			}
		}
		err := w.admin.Create(t.Context(), vm, client.DryRunAll)
		want := unsupported(t, file, pair[0], pair[1])
		switch {
		case want == "" && err == nil:
			accepted++
		case want == "" || err == nil || !strings.Contains(sentence(err), want):
			t.Errorf("%v: %v, want %q", pair, err, want)
		}
	}
	t.Logf("%d of %d pairs are accepted", accepted, len(files))
}

// unsupported returns the refusal of a pair, or "".
func unsupported(t *testing.T, file, kind, preference string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var outcome struct {
		Refused string `json:"refused"`
	}
	must(t, yaml.Unmarshal(text, &outcome))
	series, _, _ := strings.Cut(kind, ".")
	switch {
	case outcome.Refused != "":
		return strings.Replace(outcome.Refused, "Forbidden: ", "", 1)
	case strings.HasSuffix(preference, ".arm64"), strings.HasSuffix(preference, ".s390x"):
		return "spec.template.spec.architecture"
	case series == "cx1", series == "rt1":
		return "spec.template.spec.domain.cpu.numa"
	}
	return ""
}
