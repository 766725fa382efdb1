package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/rules/condition"
	virtctl "drydock.dev/drydock/internal/virtctl/client"
)

// rollout changes the NICs of all VMs, some at a time, until each guest runs with
// what its template says. How that comes about is Drydock's affair: today a change
// waits for a restart (RestartRequired), which the rollout then asks for.
type rollout struct {
	*pass
	client *virtctl.Client

	mu    sync.Mutex
	times []time.Duration
}

// measureNICs measures a rolling change of NICs.
func (p *pass) measureNICs(ctx context.Context) error {
	client, err := virtctl.New(p.cluster.Config)
	if err != nil {
		return fmt.Errorf("making a client of virt-api: %w", err)
	}
	r := &rollout{pass: p, client: client}
	if _, err := p.during(ctx, r.create); err != nil {
		return err
	}
	began := time.Now()
	var took time.Duration
	used, err := p.during(ctx, func(ctx context.Context) error {
		err := p.all(ctx, r.change)
		took = time.Since(began)
		return err
	})
	if err != nil {
		return fmt.Errorf("changing NICs: %w", err)
	}
	requests, err := p.requestsSince(ctx, began)
	if err != nil {
		return err
	}
	p.add("nic_change_all_s", "s", took.Seconds())
	for _, one := range r.times {
		p.add("nic_change_s", "s", one.Seconds())
	}
	p.add("nic_change_cpu_ms_per_vm", "ms", p.perVMI(used.controller))
	p.add("nic_change_writes_per_vm", "requests", float64(audit.Count(requests, audit.Write))/float64(p.n))
	p.report.Logf("the NICs of %d VMs were changed within %.1f s; %.2f ms of virt-controller for each", p.n, took.Seconds(), p.perVMI(used.controller))
	for _, line := range audit.Sums(requests) {
		p.report.Logf("changing the NICs of %d: %s", p.n, line)
	}
	return r.delete(ctx)
}

func (r *rollout) vm(name string) *v1.VirtualMachine {
	vmi := r.vmi(name)
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", Model: v1.VirtIO,
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	return cluster.VM(vmi)
}

func (r *rollout) create(ctx context.Context) error {
	err := r.all(ctx, func(ctx context.Context, name string) error { return r.cluster.Client.Create(ctx, r.vm(name)) })
	if err != nil {
		return fmt.Errorf("creating VMs: %w", err)
	}
	return r.agent.await(ctx, "running", r.n, running)
}

// delete waits for the end of the instances before the change and after it.
func (r *rollout) delete(ctx context.Context) error {
	err := r.all(ctx, func(ctx context.Context, name string) error { return r.cluster.Client.Delete(ctx, r.vm(name)) })
	if err != nil {
		return fmt.Errorf("deleting VMs: %w", err)
	}
	return r.agent.await(ctx, "gone", 2*r.n, gone)
}

// newModel is what the NIC becomes.
const newModel = "e1000e"

// change gives a VM another NIC and waits until a guest runs with it.
func (r *rollout) change(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	vm := r.vm(name)
	waits, err := r.cluster.Watch(ctx, &v1.VirtualMachineList{}, r.namespace, cluster.Named(name), restartRequired)
	if err != nil {
		return err
	}
	changed, err := r.cluster.Watch(ctx, &v1.VirtualMachineInstanceList{}, r.namespace, cluster.Named(name), runsChanged)
	if err != nil {
		return err
	}
	began := time.Now()
	patch := []byte(`[{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/0/model","value":"` + newModel + `"}]`)
	if err := r.cluster.Client.Patch(ctx, vm, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("changing the NIC of VM %s: %w", name, err)
	}
	if err := <-waits; err != nil {
		return fmt.Errorf("waiting for VM %s to say RestartRequired: %w", name, err)
	}
	ref := virtctl.Ref{Resource: virtctl.VirtualMachines, Namespace: r.namespace, Name: name}
	if err := r.client.Put(ctx, ref, "restart", nil); err != nil {
		return fmt.Errorf("restarting VM %s: %w", name, err)
	}
	if err := <-changed; err != nil {
		return fmt.Errorf("waiting for VM %s to run with its new NIC: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, time.Since(began))
	return nil
}

func restartRequired(_ watch.EventType, o client.Object) bool {
	vm, ok := o.(*v1.VirtualMachine)
	return ok && condition.IsTrue(vm.Status.Conditions, v1.VirtualMachineRestartRequired)
}

func runsChanged(_ watch.EventType, o client.Object) bool {
	vmi, ok := o.(*v1.VirtualMachineInstance)
	return ok && cluster.Running(vmi) && vmi.Spec.Domain.Devices.Interfaces[0].Model == newModel
}
