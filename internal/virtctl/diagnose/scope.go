package diagnose

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/virtctl/diagnose/findings"
)

// object is an object as the API server has it.
type object = findings.Object

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
		for _, dv := range o.List("spec", "dataVolumeTemplates") {
			s.addName(s.claims, o, dv, "metadata", "name")
		}
		for _, of := range []string{"instancetype", "preference"} {
			s.addName(s.types, o, o.Object, "spec", of, "name")
		}
	case "virtualmachineinstances.kubevirt.io":
		s.addMachine(o, "spec")
		for _, v := range o.List("status", "volumeStatus") {
			s.addName(s.claims, o, v, "persistentVolumeClaimInfo", "claimName")
		}
	case "datavolumes.cdi.kubevirt.io":
		s.claims[[2]string{o.GetNamespace(), o.GetName()}] = true
	}
}

func (s *scope) addMachine(o object, spec ...string) {
	s.machines[[2]string{o.GetNamespace(), o.GetName()}] = true
	s.namespaces[o.GetNamespace()] = true
	for _, v := range o.List(append(slices.Clone(spec), "volumes")...) {
		var source v1.VolumeSource
		if runtime.DefaultUnstructuredConverter.FromUnstructured(v, &source) != nil {
			continue
		}
		if name := volumeclaim.Name(&source); name != "" {
			s.claims[[2]string{o.GetNamespace(), name}] = true
		}
	}
}

func (s *scope) addName(to map[[2]string]bool, o object, in map[string]any, path ...string) {
	if name := findings.TextOf(in, path...); name != "" {
		to[[2]string{o.GetNamespace(), name}] = true
	}
}

func (s *scope) everything(object) bool { return s.vm == "" }

func (s *scope) isMachine(o object) bool { return s.vm == "" || o.GetName() == s.vm }

// names is for kinds that name their machine.
func names(path ...string) func(*scope, object) bool {
	return func(s *scope, o object) bool { return s.vm == "" || o.Text(path...) == s.vm }
}

func (s *scope) isClone(o object) bool {
	return s.vm == "" || o.Text("spec", "source", "name") == s.vm || o.Text("spec", "target", "name") == s.vm
}

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
	return s.claims[[2]string{o.Text("spec", "claimRef", "namespace"), o.Text("spec", "claimRef", "name")}]
}

func (s *scope) isVolumeSnapshot(o object) bool {
	return s.claims[[2]string{o.GetNamespace(), o.Text("spec", "source", "persistentVolumeClaimName")}]
}

func (s *scope) isPod(o object) bool {
	labels := o.GetLabels()
	return s.vm == "" || labels[v1.DeprecatedVirtualMachineNameLabel] == layout.LabelValue(s.vm) || labels[layout.MaintenanceForLabel] == s.vm || s.isOwned(o) || s.mounts(o)
}

func (s *scope) mounts(o object) bool {
	return slices.ContainsFunc(o.List("spec", "volumes"), func(v map[string]any) bool {
		claim := findings.TextOf(v, "persistentVolumeClaim", "claimName")
		return claim != "" && s.claims[[2]string{o.GetNamespace(), claim}]
	})
}

// isOwned reports whether an object's owner was collected.
func (s *scope) isOwned(o object) bool {
	return slices.ContainsFunc(o.List("metadata", "ownerReferences"), func(owner map[string]any) bool {
		return s.seen[findings.TextOf(owner, "uid")]
	})
}

func (s *scope) isInNamespace(o object) bool { return s.namespaces[o.GetNamespace()] }

// isEvent reports whether an event is about an object that was collected. Events of nodes have the name as UID.
func (s *scope) isEvent(o object) bool {
	uid := o.Text("involvedObject", "uid")
	return uid != "" && s.seen[uid] || o.Text("involvedObject", "kind") == "Node" && o.Text("involvedObject", "name") == uid && uid != ""
}
