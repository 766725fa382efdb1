package diagnose

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

// object is an object as the API server has it.
type object struct{ *unstructured.Unstructured }

func (o object) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

func (o object) list(path ...string) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	objects, _ := list.([]any)
	return objects
}

// scope knows which objects belong to the diagnosis. It grows with the objects, which come in the order of the kinds.
type scope struct {
	// vm is the one machine of the diagnosis, "" for all.
	vm string
	// machines, claims and types are names of namespaces and objects. seen has the UIDs of all that was collected.
	machines, claims, types map[[2]string]bool
	namespaces, seen        map[string]bool
}

func newScope(vm string) *scope {
	return &scope{vm: vm, machines: map[[2]string]bool{}, claims: map[[2]string]bool{}, types: map[[2]string]bool{}, namespaces: map[string]bool{}, seen: map[string]bool{}}
}

// add notes an object that was collected, and the objects that it names.
func (s *scope) add(kind string, o object) {
	if uid := string(o.GetUID()); uid != "" {
		s.seen[uid] = true
	}
	switch kind {
	case "virtualmachines.kubevirt.io":
		s.addMachine(o, "spec", "template", "spec")
		for _, dv := range o.list("spec", "dataVolumeTemplates") {
			s.addName(s.claims, o, dv, "metadata", "name")
		}
		for _, of := range []string{"instancetype", "preference"} {
			s.addName(s.types, o, o.Object, "spec", of, "name")
		}
	case "virtualmachineinstances.kubevirt.io":
		s.addMachine(o, "spec")
		for _, v := range o.list("status", "volumeStatus") {
			s.addName(s.claims, o, v, "persistentVolumeClaimInfo", "claimName")
		}
	case "datavolumes.cdi.kubevirt.io":
		s.claims[[2]string{o.GetNamespace(), o.GetName()}] = true
	}
}

func (s *scope) addMachine(o object, spec ...string) {
	s.machines[[2]string{o.GetNamespace(), o.GetName()}] = true
	s.namespaces[o.GetNamespace()] = true
	for _, v := range o.list(append(slices.Clone(spec), "volumes")...) {
		of, _ := v.(map[string]any)
		var source v1.VolumeSource
		if runtime.DefaultUnstructuredConverter.FromUnstructured(of, &source) != nil {
			continue
		}
		if name := volumeclaim.Name(&source); name != "" {
			s.claims[[2]string{o.GetNamespace(), name}] = true
		}
	}
}

func (s *scope) addName(to map[[2]string]bool, o object, in any, path ...string) {
	of, _ := in.(map[string]any)
	if name, _, _ := unstructured.NestedString(of, path...); name != "" {
		to[[2]string{o.GetNamespace(), name}] = true
	}
}

func (s *scope) everything(object) bool { return s.vm == "" }

func (s *scope) isMachine(o object) bool { return s.vm == "" || o.GetName() == s.vm }

// names is for kinds that name their machine.
func names(path ...string) func(*scope, object) bool {
	return func(s *scope, o object) bool { return s.vm == "" || o.text(path...) == s.vm }
}

func (s *scope) isClone(o object) bool {
	return s.vm == "" || o.text("spec", "source", "name") == s.vm || o.text("spec", "target", "name") == s.vm
}

// isOwner is for replica sets. A VM is none's.
func (s *scope) isOwner(object) bool { return s.vm == "" }

func (s *scope) isClaim(o object) bool {
	return s.claims[[2]string{o.GetNamespace(), o.GetName()}] || s.vm == "" && o.GetKind() == "DataVolume"
}

// isType is for instance types and preferences, those of the cluster, too.
func (s *scope) isType(o object) bool {
	for of := range s.types {
		if of[1] == o.GetName() && (o.GetNamespace() == "" || of[0] == o.GetNamespace()) {
			return true
		}
	}
	return false
}

func (s *scope) isVolume(o object) bool {
	return s.claims[[2]string{o.text("spec", "claimRef", "namespace"), o.text("spec", "claimRef", "name")}]
}

func (s *scope) isVolumeSnapshot(o object) bool {
	return s.claims[[2]string{o.GetNamespace(), o.text("spec", "source", "persistentVolumeClaimName")}]
}

func (s *scope) isPod(o object) bool {
	labels := o.GetLabels()
	return s.vm == "" || labels[v1.DeprecatedVirtualMachineNameLabel] == layout.LabelValue(s.vm) || labels[layout.MaintenanceForLabel] == s.vm || s.isOwned(o) || s.mounts(o)
}

func (s *scope) mounts(o object) bool {
	return slices.ContainsFunc(o.list("spec", "volumes"), func(v any) bool {
		of, _ := v.(map[string]any)
		claim, _, _ := unstructured.NestedString(of, "persistentVolumeClaim", "claimName")
		return claim != "" && s.claims[[2]string{o.GetNamespace(), claim}]
	})
}

// isOwned reports whether an object's owner was collected.
func (s *scope) isOwned(o object) bool {
	return slices.ContainsFunc(o.list("metadata", "ownerReferences"), func(owner any) bool {
		of, _ := owner.(map[string]any)
		uid, _, _ := unstructured.NestedString(of, "uid")
		return s.seen[uid]
	})
}

func (s *scope) isInNamespace(o object) bool { return s.namespaces[o.GetNamespace()] }

// isEvent reports whether an event is about an object that was collected. Events of nodes have the name as UID.
func (s *scope) isEvent(o object) bool {
	uid := o.text("involvedObject", "uid")
	return uid != "" && s.seen[uid] || o.text("involvedObject", "kind") == "Node" && o.text("involvedObject", "name") == uid && uid != ""
}
