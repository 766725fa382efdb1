package vmcontroller

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

// Caches lag, the controller dies between any two actions, guests end and crash, and users change their minds.
type model struct {
	vms      []*v1.VirtualMachine
	vmis     []*v1.VirtualMachineInstance
	vmCache  int
	vmiCache int
	now      time.Time
	// disk is the VM's DataVolume, or nil; tooEarly means that a VMI was made before it was ready.
	disk     *cdiv1.DataVolume
	tooEarly bool
	// starts counts the VMIs; allowed is the number of starts that users and failures justify under the strategies that
	// start once.
	starts, allowed int
}

func newModel(strategy v1.VirtualMachineRunStrategy) *model {
	m := &model{now: now, allowed: 1}
	m.vms = []*v1.VirtualMachine{newVM(strategy, withDisk)}
	m.vms[0].ResourceVersion, m.vms[0].Finalizers = "0", nil
	m.vmis = []*v1.VirtualMachineInstance{nil}
	return m
}

func (m *model) vm() *v1.VirtualMachine          { return m.vms[len(m.vms)-1] }
func (m *model) vmi() *v1.VirtualMachineInstance { return m.vmis[len(m.vmis)-1] }

func (m *model) writeVM(edit func(*v1.VirtualMachine)) {
	vm := m.vm().DeepCopy()
	edit(vm)
	vm.ResourceVersion = fmt.Sprint(len(m.vms))
	m.vms = append(m.vms, vm)
}

func (m *model) editVMI(edit func(*v1.VirtualMachineInstance)) {
	if m.vmi() == nil {
		return
	}
	vmi := m.vmi().DeepCopy()
	edit(vmi)
	m.vmis = append(m.vmis, vmi)
}

// controller is one round of the loop, cut off after `budget` actions as if the process had died.
func (m *model) controller(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, budget int) {
	o := Observed{VM: vm, VMI: vmi, DataVolumes: []DataVolume{{Name: "disk", Object: m.disk}}, Now: m.now}
	plan, alive := m.plan(&o, &budget)
	if !alive {
		return
	}
	if len(plan.CreateDataVolumes) > 0 && spend(&budget) {
		m.disk = plan.CreateDataVolumes[0].DeepCopy()
	}
	if plan.Create != nil && !m.create(plan.Create, &budget) {
		return
	}
	if fmt.Sprint(plan.VM.Status) != fmt.Sprint(o.VM.Status) {
		if !spend(&budget) || !m.current(o.VM) {
			return
		}
		m.writeVM(func(v *v1.VirtualMachine) { v.Status = *plan.VM.Status.DeepCopy() })
	}
	if plan.Delete && spend(&budget) && m.vmi() != nil && m.vmi().UID == o.VMI.UID {
		m.deleteVMI()
	}
}

// create makes a VMI, and reports whether it did.
func (m *model) create(vmi *v1.VirtualMachineInstance, budget *int) bool {
	m.tooEarly = m.tooEarly || m.disk == nil || m.disk.Status.Phase != cdiv1.Succeeded
	if !spend(budget) || m.vmi() != nil {
		return false
	}
	m.starts++
	created := vmi.DeepCopy()
	created.UID = types.UID(fmt.Sprintf("vmi-%d", m.starts))
	m.vmis = append(m.vmis, created)
	return true
}

// plan reports false when the VM turns out to be another version, or the process has died.
func (m *model) plan(o *Observed, budget *int) (Plan, bool) {
	plan := Decide(*o)
	for range 4 {
		switch plan.Needs {
		case "":
			return plan, true
		case NeedVMI:
			o.VMI, o.VMIAsked = m.vmi(), true
		case NeedVM:
			if o.VMConfirmed = m.current(o.VM); !o.VMConfirmed {
				return plan, false
			}
		case NeedStored:
			if !m.current(o.VM) || !spend(budget) {
				return plan, false
			}
			m.writeVM(func(v *v1.VirtualMachine) { v.Finalizers = plan.VM.Finalizers })
			o.VM, o.VMConfirmed = m.vm(), true
		}
		plan = Decide(*o)
	}
	panic("a question is asked again that was answered: " + plan.Needs)
}

func (m *model) current(vm *v1.VirtualMachine) bool {
	return m.vm().ResourceVersion == vm.ResourceVersion
}

func spend(budget *int) bool {
	*budget--
	return *budget >= 0
}

func (m *model) deleteVMI() {
	m.editVMI(func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{Time: m.now} })
}

// live brings the VMI one step on.
func (m *model) live() {
	vmi := m.vmi()
	switch {
	case vmi == nil:
	case vmi.DeletionTimestamp != nil:
		m.vmis = append(m.vmis, nil)
	case vmi.Status.Phase == v1.VmPhaseUnset:
		m.phase(v1.Running)
	}
}

func (m *model) phase(phase v1.VirtualMachineInstancePhase) {
	if vmi := m.vmi(); vmi == nil || vmi.IsFinal() || phase != v1.Running && vmi.Status.Phase != v1.Running {
		return
	}
	m.editVMI(func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Phase = phase
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase})
	})
}

func (m *model) ask(requests ...v1.VirtualMachineStateChangeRequest) {
	if len(m.vm().Status.StateChangeRequests) > 0 {
		return // virt-api refuses
	}
	m.writeVM(func(vm *v1.VirtualMachine) { vm.Status.StateChangeRequests = requests })
}

// unrecorded reports whether there is a VMI whose start is not in the VM's status.
func (m *model) unrecorded() bool {
	vmi, vm := m.vmi(), m.vm()
	if vmi == nil || vmi.DeletionTimestamp != nil {
		return false
	}
	strategy, _ := vm.RunStrategy()
	return vm.Status.RunStrategy != strategy || len(vm.Status.StateChangeRequests) > 0
}

func (m *model) settle() {
	for range 30 {
		m.now = m.now.Add(backOffLimit)
		m.controller(m.vm(), m.vmi(), 10)
		m.fill(cdiv1.Succeeded)
		m.live()
	}
}

func (m *model) fill(phase cdiv1.DataVolumePhase) {
	if m.disk != nil {
		m.disk = m.disk.DeepCopy()
		m.disk.Status.Phase = phase
	}
}

func TestWhateverHappensAVMIsStartedAsOftenAsAskedFor(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]v1.VirtualMachineRunStrategy{
			v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure, v1.RunStrategyManual, v1.RunStrategyAlways,
		}).Draw(t, "strategy")
		m := newModel(strategy)
		if strategy == v1.RunStrategyManual {
			m.allowed = 0
		}
		check := func(t *rapid.T) {
			if m.tooEarly {
				t.Fatal("a VMI was made before its disk was filled")
			}
			if strategy != v1.RunStrategyAlways && m.starts > m.allowed {
				t.Fatalf("started %d times, asked for %d", m.starts, m.allowed)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"the controller works": func(t *rapid.T) {
				m.controller(m.vms[m.vmCache], m.vmis[m.vmiCache], rapid.IntRange(0, 3).Draw(t, "actions until it dies"))
			},
			"another leader works on what is true": func(*rapid.T) { m.controller(m.vm(), m.vmi(), 10) },
			"the VM cache moves on":                func(*rapid.T) { m.vmCache = len(m.vms) - 1 },
			"the VMI cache moves on":               func(*rapid.T) { m.vmiCache = min(m.vmiCache+1, len(m.vmis)-1) },
			"the VMI moves on":                     func(*rapid.T) { m.live() },
			"the guest powers off":                 func(*rapid.T) { m.phase(v1.Succeeded) },
			"the guest crashes": func(*rapid.T) {
				if vmi := m.vmi(); vmi != nil && vmi.Status.Phase == v1.Running && strategy == v1.RunStrategyRerunOnFailure {
					m.allowed++
				}
				m.phase(v1.Failed)
			},
			"a user deletes the VMI": func(*rapid.T) {
				if m.unrecorded() {
					// The VM still requests a start; no record shows that it had one.
					m.allowed++
				}
				m.deleteVMI()
			},
			"a user restarts": func(*rapid.T) {
				if vmi := m.vmi(); vmi != nil && len(m.vm().Status.StateChangeRequests) == 0 && strategy != v1.RunStrategyOnce {
					m.allowed++
					m.ask(stop(vmi.UID), start)
				}
			},
			"the disk is filled":      func(*rapid.T) { m.fill(cdiv1.Succeeded) },
			"the disk fails":          func(*rapid.T) { m.fill(cdiv1.Failed) },
			"a user deletes the disk": func(*rapid.T) { m.disk = nil },
			"time passes":             func(*rapid.T) { m.now = m.now.Add(5 * time.Second) },
		})
		m.settle()
		check(t)
		m.rests(t, strategy)
	})
}

// rests fails unless all requests are done.
func (m *model) rests(t *rapid.T, strategy v1.VirtualMachineRunStrategy) {
	vm, vmi := m.vm(), m.vmi()
	if len(vm.Status.StateChangeRequests) > 0 {
		t.Fatalf("requests are left: %v", vm.Status.StateChangeRequests)
	}
	if strategy == v1.RunStrategyAlways && (vmi == nil || vmi.Status.Phase != v1.Running) {
		t.Fatalf("under Always it does not run: %s", vm.Status.PrintableStatus)
	}
	before := len(m.vms)
	m.controller(m.vm(), m.vmi(), 10)
	if len(m.vms) != before {
		t.Fatal("it does not come to rest")
	}
}
