// Package memory measures the costs of a running guest beside its own memory, and the idle memory of Drydock and
// the embedded cluster.
//
// All figures are proportional set sizes, so that sums are correct. A guest is measured after its boot, and again
// after work, because emulation keeps its translated code; a pod's memory request must cover the second figure.
//
// It must not measure CPU time.
package memory

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/bench/report"
)

// Options are the benchmark's options.
type Options struct {
	vmis int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.vmis, "memory-vmis", 4, "memory: guests that run at the same time")
}

// warmUp is how long a guest runs before it is measured: it has booted, and emulation has
// translated the idle guest's code.
const warmUp = 15 * time.Second

const mib = 1024 // in KiB

var components = []string{"virt-api", "virt-controller", "virt-handler"}

// Run runs the benchmark.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	idle, err := measureIdle(ctx, c, r)
	if err != nil {
		return err
	}
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	if err := o.startGuests(ctx, c, ns); err != nil {
		return err
	}
	if err := eachGuest(ctx, c, ns, func(u usage) { u.addIdle(r) }); err != nil {
		return err
	}
	busy, err := componentsMemory(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range components {
		r.Add("memory.growth_per_vmi_"+strings.TrimPrefix(name, "virt-")+"_mib", "MiB", float64(busy[name]-idle[name])/mib/float64(o.vmis))
	}
	if err := o.work(ctx, c, ns); err != nil {
		return err
	}
	return eachGuest(ctx, c, ns, func(u usage) { u.addWorked(r) })
}

func (o *Options) startGuests(ctx context.Context, c *cluster.Cluster, ns string) error {
	for i := range o.vmis {
		if _, _, err := c.CreateAndAwait(ctx, cluster.VMI(ns, guestName(i)), &v1.VirtualMachineInstanceList{}, cluster.Running); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(warmUp):
		return nil
	}
}

func guestName(number int) string { return fmt.Sprintf("guest-%d", number) }

const (
	// load runs some hundred short programs, as a guest does in its first minutes.
	load = "for i in $(seq 100); do ls -lR /etc /bin | md5sum; done >/dev/null"
	// settled is QEMU's growth in KiB below which its translation cache, which is bounded, is full.
	settled = mib / 2
)

// All guests work at the same time until their memory stops growing.
func (o *Options) work(ctx context.Context, c *cluster.Cluster, ns string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*cluster.Patience)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for i := range o.vmis {
		group.Go(func() error {
			name := guestName(i)
			var pods corev1.PodList
			if err := c.Client.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{v1.DeprecatedVirtualMachineNameLabel: name}); err != nil {
				return fmt.Errorf("looking for the launcher pod of %s: %w", name, err)
			}
			if len(pods.Items) != 1 {
				return fmt.Errorf("looking for the launcher pod of %s: there are %d", name, len(pods.Items))
			}
			conn, err := c.Console(ctx, ns, name)
			if err != nil {
				return err
			}
			defer conn.Close()
			shell, err := cluster.Login(ctx, conn)
			if err != nil {
				return err
			}
			for before := 0; ; {
				if _, _, err := shell.Run(ctx, load); err != nil {
					return err
				}
				u, err := usageOf(&pods.Items[0])
				if err != nil {
					return err
				}
				if u.overhead()-before < settled {
					return nil
				}
				before = u.overhead()
			}
		})
	}
	return group.Wait()
}

func eachGuest(ctx context.Context, c *cluster.Cluster, ns string, tell func(usage)) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return fmt.Errorf("listing the launcher pods: %w", err)
	}
	for i := range pods.Items {
		u, err := usageOf(&pods.Items[i])
		if err != nil {
			return fmt.Errorf("measuring pod %s: %w", pods.Items[i].Name, err)
		}
		tell(u)
	}
	return nil
}

func (u usage) addIdle(r *report.Report) {
	r.Add("memory.beside_qemu_mib", "MiB", float64(u.beside)/mib)
	r.Add("memory.launcher_rss_mib", "MiB", float64(u.launcherRSS)/mib)
	r.Add("memory.sandbox_mib", "MiB", float64(u.sandbox)/mib)
	r.Add("memory.guest_ram_touched_mib", "MiB", float64(u.guest)/mib)
	r.Add("memory.qemu_beside_guest_mib", "MiB", float64(u.qemu-u.guest)/mib)
	r.Add("memory.overhead_used_idle_mib", "MiB", float64(u.overhead())/mib)
}

func (u usage) addWorked(r *report.Report) {
	requested := u.requested - guestRAM
	r.Add("memory.overhead_requested_mib", "MiB", float64(requested)/mib)
	r.Add("memory.overhead_used_mib", "MiB", float64(u.overhead())/mib)
	r.Add("memory.overhead_requested_over_used", "ratio", float64(requested)/float64(u.overhead()))
	// The guest may touch all of its memory at any time, so it counts fully.
	r.Add("memory.requested_over_used", "ratio", float64(u.requested)/float64(guestRAM+u.overhead()))
}

// guestRAM is in KiB.
const guestRAM = cluster.GuestMemoryMiB * mib

func (u usage) overhead() int { return u.qemu - u.guest + u.launcher + u.pageTables }

// usage is in KiB.
type usage struct {
	// qemu is all of QEMU's memory and guest the guest's RAM in it.
	qemu, guest int
	// launcher is virt-launcher, sandbox the pod's pause and the runtime's shim, which every pod
	// has; beside is both.
	launcher, launcherRSS, sandbox, beside int
	// pageTables are QEMU's page tables, and requested is the pod's whole request.
	pageTables, requested int
}

func usageOf(pod *corev1.Pod) (usage, error) {
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return usage{}, err
	}
	shims, err := shimsOf(processes)
	if err != nil {
		return usage{}, err
	}
	u := usage{requested: int(pod.Spec.Containers[0].Resources.Requests.Memory().Value() >> 10)}
	for _, p := range append(processes, shims...) {
		m, err := proc.MemoryOf(p.PID)
		if err != nil {
			return u, err
		}
		switch {
		case strings.HasPrefix(p.Name(), "qemu-system-"):
			ram, err := proc.GuestRAM(p.PID, guestRAM)
			if err != nil {
				return u, err
			}
			u.qemu, u.guest = m.PSS, ram.PSS
			if u.pageTables, err = proc.PageTables(p.PID); err != nil {
				return u, err
			}
		case p.Name() == "virt-launcher":
			u.launcher, u.launcherRSS = u.launcher+m.PSS, m.RSS
		default:
			u.sandbox += m.PSS
		}
	}
	if u.qemu == 0 || u.launcher == 0 {
		return u, fmt.Errorf("looking for QEMU and virt-launcher among %d processes: one of them is not there", len(processes))
	}
	u.beside = u.launcher + u.sandbox
	return u, nil
}

// The runtime's shim is in no pod's cgroup: it is the parent of the pod's first processes.
func shimsOf(processes []proc.Process) ([]proc.Process, error) {
	shims, err := proc.ByArgs("containerd-shim")
	if err != nil {
		return nil, err
	}
	parents := map[int]bool{}
	for _, p := range processes {
		parent, err := proc.Parent(p.PID)
		if err != nil {
			return nil, err
		}
		parents[parent] = true
	}
	var out []proc.Process
	for _, s := range shims {
		if parents[s.PID] {
			out = append(out, s)
		}
	}
	return out, nil
}

func measureIdle(ctx context.Context, c *cluster.Cluster, r *report.Report) (map[string]int, error) {
	idle, err := componentsMemory(ctx, c)
	if err != nil {
		return nil, err
	}
	sum := 0
	for _, name := range components {
		r.Add("memory.idle_"+strings.TrimPrefix(name, "virt-")+"_mib", "MiB", float64(idle[name])/mib)
		sum += idle[name]
	}
	r.Add("memory.control_plane_idle_mib", "MiB", float64(sum)/mib)
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	kubernetes, err := kubernetesMemory(status)
	if err != nil {
		return nil, err
	}
	r.Add("memory.cluster_idle_mib", "MiB", float64(kubernetes+sum)/mib)
	return idle, nil
}

func componentsMemory(ctx context.Context, c *cluster.Cluster) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range components {
		pods, err := c.Components(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			processes, err := proc.OfPod(string(pods[i].UID))
			if err != nil {
				return nil, err
			}
			for _, p := range processes {
				m, err := proc.MemoryOf(p.PID)
				if err != nil {
					return nil, err
				}
				out[name] += m.PSS
			}
		}
	}
	return out, nil
}

func kubernetesMemory(s cluster.Status) (int, error) {
	pids := []int{s.Supervisor}
	for _, p := range s.ControlPlane {
		pids = append(pids, p.PID)
	}
	for _, n := range s.Nodes {
		pids = append(pids, n.Init)
		for _, p := range n.Components {
			pids = append(pids, p.PID)
		}
	}
	sum := 0
	for _, pid := range pids {
		m, err := proc.MemoryOf(pid)
		if err != nil {
			return 0, err
		}
		sum += m.PSS
	}
	return sum, nil
}
