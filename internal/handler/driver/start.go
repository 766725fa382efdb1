package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/rules/machine"
)

const (
	// prepareTimeout bounds the preparation of network and disks, and the
	// inspection of images on slow storage.
	prepareTimeout = 2 * time.Minute
	// startTimeout bounds the wait for QEMU's monitor; with much memory to
	// allocate in advance, QEMU takes its time.
	startTimeout = 2 * time.Minute
	// maxResolvConf bounds a file that the kubelet writes.
	maxResolvConf = 64 << 10
)

// tunNumber is the number of /dev/net/tun (the kernel's admin-guide/devices.txt).
var tunNumber = unix.Mkdev(10, 200)

// prepared is what the preparation of a pod has found or made. It is the same
// whether the guest is to be started or runs already.
type prepared struct {
	interfaces []network.Interface
	images     map[string]launch.PreparedImage
	claims     map[string]*v1.PersistentVolumeClaimInfo // by volume
	kvm, vhost bool
	// selinux is what the launcher is known by.
	selinux nodeselinux.Launcher
}

// prepare makes everything that QEMU opens, and what the guest's network needs
// as long as it runs. All of it may exist already.
func (d *Driver) prepare(ctx context.Context, instance *v1.VirtualMachineInstance) (*prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	p := &prepared{selinux: d.link.selinux}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		p.interfaces, err = d.prepareNetwork(ctx, instance)
		return err
	})
	group.Go(func() (err error) {
		p.claims, err = d.claims(ctx, instance)
		if err == nil {
			err = d.prepareDisks(ctx, instance, p)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return p, nil
}

func (d *Driver) prepareNetwork(ctx context.Context, instance *v1.VirtualMachineInstance) ([]network.Interface, error) {
	resolvConf, err := d.link.peer.Root.ReadFile("/etc/resolv.conf", maxResolvConf)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's DNS settings: %w", err)
	}
	pod := network.Pod{NetNS: d.link.peer.NetNS, ResolvConf: string(resolvConf)}
	if d.link.selinux.Apart() {
		root := d.link.peer.Root
		pod.Taps = &network.TapChild{Enter: d.link.selinux.Exec, Open: func() (*os.File, error) {
			return root.CharDevice(layout.TUNDevice, tunNumber, unix.O_RDWR)
		}}
	}
	interfaces, err := d.env.Network.Setup(ctx, pod, instance)
	if err != nil {
		return nil, fmt.Errorf("preparing the network: %w", err)
	}
	return interfaces, nil
}

func (d *Driver) prepareDisks(ctx context.Context, instance *v1.VirtualMachineInstance, p *prepared) error {
	root := d.link.peer.Root
	pod := disk.Pod{Root: root, User: layout.QEMUUser, Capacity: p.capacity}
	if err := disk.OwnDevices(pod); err != nil {
		return err
	}
	var err error
	if p.kvm, err = root.Exists(layout.KVMDevice); err != nil {
		return err
	}
	if p.vhost, err = root.Exists(layout.VhostNetDevice); err != nil {
		return err
	}
	plan, err := disk.NewPlan(instance)
	if err != nil {
		return err
	}
	if err := plan.Apply(ctx, pod); err != nil {
		return err
	}
	p.images, err = d.link.client.Prepare(ctx, machine.Images(instance))
	return err
}

// claims reads the VMI's claims, each once.
func (d *Driver) claims(ctx context.Context, instance *v1.VirtualMachineInstance) (map[string]*v1.PersistentVolumeClaimInfo, error) {
	infos := map[string]*v1.PersistentVolumeClaimInfo{}
	for volume, name := range vmi.Claims(instance) {
		claim, err := d.env.Cluster.Claim(ctx, instance.Namespace, name)
		if err != nil {
			return nil, fmt.Errorf("reading PVC %s/%s: %w", instance.Namespace, name, err)
		}
		infos[volume] = &v1.PersistentVolumeClaimInfo{
			ClaimName: name, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: claim.Status.Capacity, Requests: claim.Spec.Resources.Requests,
		}
	}
	return infos, nil
}

// capacity is the size that a claim was given, or asked for.
func (p *prepared) capacity(_ context.Context, claim string) (int64, error) {
	for _, info := range p.claims {
		if info.ClaimName != claim {
			continue
		}
		if q, ok := info.Capacity[corev1.ResourceStorage]; ok {
			return q.Value(), nil
		}
		q := info.Requests[corev1.ResourceStorage]
		return q.Value(), nil
	}
	return 0, fmt.Errorf("PVC %s is none of the VMI's", claim)
}

// start has virt-launcher start the guest.
func (d *Driver) start(ctx context.Context, o vmi.Observed) error {
	p, err := d.prepare(ctx, o.VMI)
	if err != nil {
		return err
	}
	m, err := machine.Build(d.input(o.VMI, p))
	if err != nil {
		return fmt.Errorf("building the machine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d.log.Info("starting the guest", "kvm", d.env.KVM && p.kvm)
	_, err = d.link.client.Start(ctx, launch.Start{Args: m.Args(), GracePeriodSeconds: vmi.GracePeriod(o.VMI)})
	if err != nil {
		return err
	}
	d.prepared = p
	return nil
}

func (d *Driver) input(instance *v1.VirtualMachineInstance, p *prepared) machine.Input {
	settings := d.env.Settings()
	in := machine.Input{
		VMI: instance, KVM: d.env.KVM && p.kvm,
		MachineType: settings.MachineType, CPUModel: settings.CPUModel, SMBIOS: settings.SMBIOS,
		Images: p.images, NICs: map[string]machine.NIC{}, Now: d.env.Now(),
	}
	for _, i := range p.interfaces {
		in.NICs[i.Name] = machine.NIC{Tap: i.Tap, MAC: i.MAC, MTU: i.MTU, VhostNet: p.vhost}
	}
	return in
}

// attach takes over a QEMU that runs, whether this driver has started it or an
// earlier one did.
func (d *Driver) attach(ctx context.Context, o vmi.Observed) error {
	if d.prepared == nil {
		p, err := d.prepare(ctx, o.VMI)
		if err != nil {
			return err
		}
		d.prepared = p
	}
	g, err := d.openGuest(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.closeGuest(d.guest)
	d.guest = g
	if d.vmi != nil {
		// What the agent told an earlier virt-handler stands until it tells anew.
		g.told = vmi.AgentOf(d.vmi.Status)
	}
	d.mu.Unlock()
	if m, err := d.machine(); err == nil && d.env.Attached != nil {
		d.env.Attached(ctx, m)
	}
	return nil
}

// stop has virt-launcher press the power button, and end QEMU by force when the
// grace period is over.
func (d *Driver) stop(ctx context.Context, o vmi.Observed) {
	grace := vmi.Grace(o)
	_, failure := vmi.Broken(o)
	d.stopping = &stopping{grace: grace, since: o.Now}
	d.log.Info("stopping the guest", "gracePeriodSeconds", grace, "runState", o.RunState)
	client := d.link.client
	d.helpers.Go(func() {
		// The end is heard from virt-launcher's event; a request that is lost is
		// made good by Kill.
		if err := client.Stop(ctx, launch.Stop{GracePeriodSeconds: grace, Failure: failure}); err != nil && ctx.Err() == nil && client.Exit() == nil {
			d.log.Info("virt-launcher was asked to stop the guest", "reason", err.Error())
		}
	})
}

// kill ends a virt-launcher that does not do as it is told, and QEMU with it.
func (d *Driver) kill() error {
	d.log.Info("ending the launcher by force: it has not stopped the guest within its grace period")
	d.stopping = &stopping{grace: 0, since: d.env.Now()}
	return d.link.peer.Kill()
}
