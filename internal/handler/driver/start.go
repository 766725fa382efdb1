package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// prepareTimeout includes the inspection of images on slow storage.
	prepareTimeout = 2 * time.Minute
	// QEMU needs time to preallocate much memory.
	startTimeout = 2 * time.Minute
)

// The kernel's admin-guide/devices.txt has the numbers of /dev/net/tun.
var tunNumber = unix.Mkdev(10, 200)

// prepared is the same whether a pod's guest is to be started or runs already. It is not modified. nics.Concern has the
// present interfaces of an attached QEMU.
type prepared struct {
	interfaces []network.Interface
	images     map[string]launch.PreparedImage
	claims     volumes.Claims
	kvm, vhost bool
	selinux    nodeselinux.Launcher
}

func (p *prepared) with(interfaces []network.Interface) *prepared {
	next := *p
	next.interfaces = interfaces
	return &next
}

// prepare makes everything that QEMU opens and the guest's network. All of it may exist already; runs means that QEMU
// runs.
func (d *Driver) prepare(ctx context.Context, instance *v1.VirtualMachineInstance, runs bool) (*prepared, error) {
	if vmihandler.RoleOf(instance, d.env.Node) == vmihandler.Destination {
		instance = volumemigration.Target(instance)
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	p := &prepared{selinux: d.link.SELinux}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		p.interfaces, err = d.prepareNetwork(ctx, instance, runs, nil)
		return err
	})
	group.Go(func() (err error) {
		p.claims, err = volumes.ReadClaims(ctx, d.env.Cluster, instance)
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

func (d *Driver) prepareNetwork(ctx context.Context, instance *v1.VirtualMachineInstance, runs bool, comes []string) ([]network.Interface, error) {
	resolvConf, err := d.link.ResolvConf()
	if err != nil {
		return nil, err
	}
	awaits := vmihandler.RoleOf(instance, d.env.Node) == vmihandler.Destination
	pod := network.Pod{NetNS: d.link.Peer.NetNS, ResolvConf: resolvConf, Awaits: awaits, Runs: runs, Comes: comes, Bindings: d.env.Settings().NetworkBindings}
	if d.link.SELinux.Apart() {
		root := d.link.Peer.Root
		pod.Taps = &network.TapChild{Enter: d.link.SELinux.Exec, Open: func() (*os.File, error) {
			return root.CharDevice(layout.TUNDevice, tunNumber, unix.O_RDWR)
		}}
	}
	if pod.Devices, err = d.devices(instance, d.link.Peer); err != nil {
		return nil, err
	}
	interfaces, err := d.env.Network.Setup(ctx, pod, instance)
	if err != nil {
		return nil, fmt.Errorf("preparing the network: %w", err)
	}
	return interfaces, nil
}

func (d *Driver) prepareDisks(ctx context.Context, instance *v1.VirtualMachineInstance, p *prepared) error {
	root := d.link.Peer.Root
	var err error
	if p.kvm, err = root.Exists(layout.KVMDevice); err != nil {
		return err
	}
	if p.vhost, err = root.Exists(layout.VhostNetDevice); err != nil {
		return err
	}
	pod := disk.Pod{Root: root, User: layout.QEMUUser, Capacity: p.claims.Capacity, Tolerated: d.env.Settings().LessSpaceTolerated}
	if err := d.env.Disks(ctx, pod, instance); err != nil {
		return err
	}
	p.images, err = d.link.Prepare(ctx, machine.Images(instance))
	return err
}

// PrepareDisks makes the disks that need virt-handler's privileges, and gives the devices to QEMU's user. Existing
// disks are left as they are.
func PrepareDisks(ctx context.Context, pod disk.Pod, instance *v1.VirtualMachineInstance) error {
	if err := disk.OwnDevices(pod); err != nil {
		return err
	}
	plan, err := disk.NewPlan(instance)
	if err != nil {
		return err
	}
	return plan.Apply(ctx, pod)
}

func (d *Driver) startGuest(ctx context.Context, instance *v1.VirtualMachineInstance, at vmihandler.Role) error {
	if at == vmihandler.Destination {
		// The incoming QEMU must have the same NICs as the source. Missing ones are plugged once the guest runs here.
		instance = nichotplug.Arriving(instance)
	}
	p, err := d.prepare(ctx, instance, false)
	if err != nil {
		return err
	}
	in := d.input(instance, p)
	if in.KVM, err = vmihandler.UsesKVM(instance, at, in.KVM); err != nil {
		return fmt.Errorf("choosing what the guest runs with: %w", err)
	}
	if at == vmihandler.Destination {
		in.Incoming = instance.Status.MigrationState.MigrationUID
		if has := instance.Status.CurrentCPUTopology; has != nil {
			in.Sockets = has.Sockets
		}
		in.Memory = machine.BootMemory(instance)
	}
	m, err := machine.Build(in)
	if err != nil {
		return fmt.Errorf("building the machine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d.log.Info("starting the guest", "kvm", in.KVM, "migration", in.Incoming)
	start := launch.Start{Args: m.Args(), GracePeriodSeconds: vmihandler.GracePeriod(instance), Incoming: in.Incoming != "",
		DownwardMetrics: machine.DownwardMetrics(&instance.Spec, d.env.Node)}
	if start.TPM, err = d.tpm(&instance.Spec, in.Incoming); err != nil {
		return err
	}
	if err := d.raiseMemlockLimit(instance, in.Memory); err != nil {
		return err
	}
	if err := d.link.Start(ctx, start); err != nil {
		return err
	}
	d.prepared = p
	return nil
}

func (d *Driver) tpm(spec *v1.VirtualMachineInstanceSpec, incoming types.UID) (*launch.TPM, error) {
	current := ""
	if machine.KeepsTPM(spec) {
		var err error
		if current, err = disk.CurrentTPM(d.pod()); err != nil {
			return nil, err
		}
	}
	return machine.TPM(spec, current, incoming), nil
}

func (d *Driver) pod() disk.Pod { return disk.Pod{Root: d.link.Peer.Root, User: layout.QEMUUser} }

func (d *Driver) input(instance *v1.VirtualMachineInstance, p *prepared) machine.Input {
	settings := d.env.Settings()
	kvm, _ := d.env.kvm() // no guest is started before it is known
	in := machine.Input{
		VMI: instance, KVM: kvm && p.kvm,
		MachineType: settings.MachineType, CPUModel: settings.CPUModel, SMBIOS: settings.SMBIOS,
		Images: p.images, NICs: map[string]machine.NIC{}, Now: d.env.Now(),
	}
	for _, i := range p.interfaces {
		in.NICs[i.Name] = machine.NIC{Tap: i.Tap, MAC: i.MAC, MTU: i.MTU, Device: i.Device, VhostNet: p.vhost}
	}
	return in
}

// virt-launcher presses the power button and kills QEMU after the grace period. A target's QEMU, still without its
// guest, ends at once.
func (d *Driver) stop(ctx context.Context, s *snapshot, o vmihandler.Observed) error {
	grace := vmihandler.Grace(o)
	if s.role == vmihandler.Destination {
		if s.attached != nil && o.VMI.Status.MigrationState != nil {
			if err := s.attached.guest.Doom(ctx, s.guest.Migration.Incoming); err != nil {
				return err
			}
		}
		grace = 0
	}
	_, failure := vmihandler.Broken(o)
	d.log.Info("stopping the guest", "gracePeriodSeconds", grace, "runState", o.RunState)
	d.link.Stop(ctx, launch.Stop{GracePeriodSeconds: grace, Failure: failure}, func(err error) {
		d.log.Info("virt-launcher was asked to stop the guest", "reason", err.Error())
	})
	return nil
}
