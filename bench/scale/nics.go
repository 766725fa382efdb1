package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/audit"
	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/rules/object/condition"
	virtctl "drydock.dev/drydock/internal/virtctl/client"
)

// rollout adds a NIC to all VMs, until each guest runs with it.
type rollout struct {
	*pass
	way
	client *virtctl.Client

	mu    sync.Mutex
	times []time.Duration
}

type way struct {
	// prefix begins the figures' names.
	prefix string
	// strategy is the cluster's. With Stage, the change needs a restart, which the benchmark requests.
	strategy v1.VMRolloutStrategy
	// inPlace means that a controller attaches running pods to networks. Without one the guests migrate.
	inPlace bool
}

var ways = []way{
	{"nic_change", v1.VMRolloutStrategyLiveUpdate, false},
	{"nic_attach", v1.VMRolloutStrategyLiveUpdate, true},
	{"nic_restart", v1.VMRolloutStrategyStage, false},
}

// The change is live by migrations, live in place, or by restarts.
func (o *Options) measureNICs(ctx context.Context, c *cluster.Cluster, measure func(*rollout) error) (err error) {
	client, err := virtctl.New(c.Config)
	if err != nil {
		return fmt.Errorf("making a client of virt-api: %w", err)
	}
	for _, way := range ways {
		reset, err := configure(ctx, c, way.strategy)
		if err != nil {
			return err
		}
		err = measure(&rollout{way: way, client: client})
		if err := errors.Join(err, reset()); err != nil {
			return fmt.Errorf("measuring %s: %w", way.prefix, err)
		}
	}
	return nil
}

// As many migrations may run as there are users.
func configure(ctx context.Context, c *cluster.Cluster, strategy v1.VMRolloutStrategy) (reset func() error, err error) {
	var list v1.KubeVirtList
	if err := c.Client.List(ctx, &list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for the cluster's configuration: %w", err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("looking for the cluster's configuration: there are %d KubeVirt objects", len(list.Items))
	}
	before := &list.Items[0]
	kv := before.DeepCopy()
	kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}
	kv.Spec.Configuration.VMRolloutStrategy = &strategy
	kv.Spec.Configuration.MigrationConfiguration = &v1.MigrationConfiguration{
		ParallelMigrationsPerCluster: new(uint32(users)), ParallelOutboundMigrationsPerNode: new(uint32(users)),
	}
	if err := c.Client.Patch(ctx, kv, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("configuring the cluster: %w", err)
	}
	return func() error {
		now := kv.DeepCopy()
		now.Spec = before.Spec
		if err := c.Client.Patch(context.WithoutCancel(ctx), now, client.MergeFrom(kv)); err != nil {
			return fmt.Errorf("giving the cluster its configuration back: %w", err)
		}
		return nil
	}, nil
}

func (r *rollout) measure(ctx context.Context) error {
	if err := startNetworks(ctx, r.cluster, r.agent, r.inPlace); err != nil {
		return err
	}
	if _, err := r.during(ctx, r.create); err != nil {
		return err
	}
	began := time.Now()
	var took time.Duration
	used, err := r.during(ctx, func(ctx context.Context) error {
		err := r.all(ctx, r.change)
		took = time.Since(began)
		return err
	})
	if err != nil {
		return fmt.Errorf("changing NICs: %w", err)
	}
	requests, err := r.cluster.RequestsSince(ctx, began)
	if err != nil {
		return err
	}
	r.add(r.prefix+"_all_s", "s", took.Seconds())
	for _, one := range r.times {
		r.add(r.prefix+"_s", "s", one.Seconds())
	}
	r.add(r.prefix+"_cpu_ms_per_vm", "ms", r.perVMI(used.controller))
	r.add(r.prefix+"_writes_per_vm", "requests", float64(audit.Count(requests, audit.Write))/float64(r.n))
	r.report.Logf("%s: %d VMs had their NICs within %.1f s; %.2f ms of virt-controller for each", r.prefix, r.n, took.Seconds(), r.perVMI(used.controller))
	for _, line := range audit.Sums(requests) {
		r.report.Logf("%s, %d VMs: %s", r.prefix, r.n, line)
	}
	return r.delete(ctx)
}

func (r *rollout) vm(name string) *v1.VirtualMachine {
	vmi := r.vmi(name)
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
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

// Instances from before a restart must end, too.
func (r *rollout) delete(ctx context.Context) error {
	err := r.all(ctx, func(ctx context.Context, name string) error { return r.cluster.Client.Delete(ctx, r.vm(name)) })
	if err != nil {
		return fmt.Errorf("deleting VMs: %w", err)
	}
	instances := r.n
	if r.strategy == v1.VMRolloutStrategyStage {
		instances *= 2
	}
	return r.agent.await(ctx, "gone", instances, gone)
}

const newNIC = "blue"

const plugNIC = `[
	{"op":"add","path":"/spec/template/spec/networks/-","value":{"name":"` + newNIC + `","multus":{"networkName":"` + newNIC + `"}}},
	{"op":"add","path":"/spec/template/spec/domain/devices/interfaces/-","value":{"name":"` + newNIC + `","bridge":{}}}]`

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
	if err := r.cluster.Client.Patch(ctx, vm, client.RawPatch(types.JSONPatchType, []byte(plugNIC))); err != nil {
		return fmt.Errorf("changing the NICs of VM %s: %w", name, err)
	}
	if r.strategy == v1.VMRolloutStrategyStage {
		if err := <-waits; err != nil {
			return fmt.Errorf("waiting for VM %s to say RestartRequired: %w", name, err)
		}
		ref := virtctl.Ref{Resource: virtctl.VirtualMachines, Namespace: r.namespace, Name: name}
		if err := r.client.Put(ctx, ref, "restart", nil); err != nil {
			return fmt.Errorf("restarting VM %s: %w", name, err)
		}
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
	return ok && cluster.Running(vmi) && plugged(vmi) > 0
}
