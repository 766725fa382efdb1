package evacuation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/launcherpod"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/objectevent"
	"drydock.dev/drydock/internal/rules/podstatus"
)

// Eviction is a request to evict a pod, with what the API server says about the pod.
type Eviction struct {
	// Pod is nil when it is gone.
	Pod *corev1.Pod
	// VMI is the one that the pod says it was made for, nil when there is none.
	VMI *v1.VirtualMachineInstance
	// VM is the VMI's, nil when it has none. It counts only where HeldByDisks of package migration.
	VM *v1.VirtualMachine
	// Cluster is the cluster's strategy.
	Cluster v1.EvictionStrategy
}

// Answer is what an eviction is answered.
type Answer struct {
	Allowed bool
	// Mark asks for the VMI to be marked (function Mark) before the eviction is refused.
	Mark bool
	// Message is why the eviction is refused, "" if it is allowed.
	Message string
}

var allowed = Answer{Allowed: true}

// Triggered begins the answer by which the descheduler knows that what it asked for is under
// way, as KubeVirt words it.
const Triggered = "Eviction triggered evacuation of VMI"

// Judge decides about an eviction. Only a pod that the VMI names by its UID is protected: a
// guest runs in no other, and tenants can't write there.
//
//	pod of the guest    None: allowed; External, LiveMigrateIfPossible: marked
//	                    LiveMigrate: marked, or refused with why it can't be migrated
//	pod that it goes to refused, unless the strategy is None
//	any other           allowed
//
// What is allowed for a pod that is neither ending nor left must be allowed by its budget
// (Budget) as well, or an eviction is never answered the same with and without virt-api.
func Judge(e Eviction) Answer {
	pod, vmi := e.Pod, e.VMI
	switch {
	case pod == nil, pod.DeletionTimestamp != nil, podstatus.Terminal(pod):
		return allowed
	case vmi == nil, vmi.IsFinal(), vmi.DeletionTimestamp != nil, launcherpod.BondOf(pod, vmi) != launcherpod.Chosen:
		return allowed
	}
	strategy := Strategy(vmi, e.Cluster)
	switch {
	case strategy == v1.EvictionStrategyNone:
		return allowed
	case pod.Name != launcherpod.CurrentName(vmi):
		return judgeOther(pod, vmi)
	case strategy == v1.EvictionStrategyExternal:
		return marked(vmi, "its evictionStrategy is External, and whoever looks after it has to move or stop it")
	}
	return judgeGuest(e, strategy)
}

// judgeOther decides about the pod of the VMI that its guest is not in: the target of a
// migration, or what it has left.
func judgeOther(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) Answer {
	if ms := vmi.Status.MigrationState; !migration.InFlight(vmi) || ms.TargetPod != pod.Name {
		return allowed
	}
	return Answer{Message: fmt.Sprintf("the guest of VMI %q is being migrated to this pod; it is moved on when it has arrived", name(vmi))}
}

// judgeGuest decides about the pod that a guest is in which is to be migrated.
func judgeGuest(e Eviction, strategy v1.EvictionStrategy) Answer {
	vmi := e.VMI
	err := migration.Movable(vmi)
	switch {
	case vmi.Status.Phase == v1.Scheduled:
		return marked(vmi, "it is migrated away as soon as it runs")
	case err == nil:
		return marked(vmi, "it is being migrated to another node")
	case len(DiskMoves(e.VM, vmi)) > 0:
		return marked(vmi, copying(e.VM))
	case strategy == v1.EvictionStrategyLiveMigrateIfPossible:
		return marked(vmi, objectevent.Fit(fmt.Sprintf("it is being stopped, because it can't be migrated: %v", err)))
	}
	return Answer{Message: objectevent.Fit(fmt.Sprintf("VMI %q has the evictionStrategy LiveMigrate and can't be migrated: %v; stop it, or do what is needed for its migration", name(vmi), err))}
}

// marked refuses an eviction because of what it has triggered.
func marked(vmi *v1.VirtualMachineInstance, what string) Answer {
	return Answer{
		Mark:    vmi.Status.EvacuationNodeName != vmi.Status.NodeName,
		Message: fmt.Sprintf("%s %q: %s", Triggered, name(vmi), what),
	}
}

func name(vmi *v1.VirtualMachineInstance) string { return vmi.Namespace + "/" + vmi.Name }
