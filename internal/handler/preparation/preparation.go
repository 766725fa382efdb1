// Package preparation makes everything that QEMU opens in its pod (disks, networks, the TPM's state, limits), before a
// start or when virt-handler attaches to a running QEMU, and starts QEMU.
//
// It owns the value Prepared and the input for a guest's machine. It must not decide whether a guest is started, and
// keeps nothing: all that it makes may exist already.
package preparation

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/nodeselinux"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
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

// Network makes the networks of pods.
type Network interface {
	Setup(ctx context.Context, pod network.Pod, vmi *v1.VirtualMachineInstance) ([]network.Interface, error)
}

// Env has the dependencies of the preparation of one VMI's pods.
type Env struct {
	Node    string
	Network Network
	Cluster volumes.Cluster
	// Disks is MakeDisks outside of tests.
	Disks    func(ctx context.Context, pod disk.Pod, vmi *v1.VirtualMachineInstance) error
	Settings func() clusterconfig.Settings
	KVM      func() (usable, known bool) // the result of the node's probe
	// Devices returns the node's devices of the launcher pod's interfaces.
	Devices func() nichotplug.Devices
	Now     func() time.Time
	Log     logr.Logger
}

// Pod prepares one launcher pod.
type Pod struct {
	Env  *Env
	Link *connection.Link
}

// Prepared is the same for a start and for a running guest. It is not modified: nics.Concern has the present interfaces
// of an attached QEMU.
type Prepared struct {
	Interfaces []network.Interface
	Images     map[string]launch.PreparedImage
	Claims     volumes.Claims
	SELinux    nodeselinux.Launcher
	kvm, vhost bool
	// Network and Disks are the times of their preparation, Launched is when virt-launcher was told to start QEMU.
	Network, Disks starttrace.Interval
	Launched       time.Time
}

// With returns a copy with other interfaces.
func (p *Prepared) With(interfaces []network.Interface) *Prepared {
	next := *p
	next.Interfaces = interfaces
	return &next
}

// Prepare makes everything that QEMU opens, and the guest's network. All of it may exist already. runs means that QEMU
// runs.
func (p *Pod) Prepare(ctx context.Context, instance *v1.VirtualMachineInstance, runs bool) (*Prepared, error) {
	if vmihandler.RoleOf(instance, p.Env.Node) == vmihandler.Destination {
		instance = volumemigration.Target(instance)
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	made := &Prepared{SELinux: p.Link.SELinux}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		defer p.measure(&made.Network)()
		made.Interfaces, err = p.setUpNetwork(ctx, instance, runs, nil)
		return err
	})
	group.Go(func() (err error) {
		defer p.measure(&made.Disks)()
		made.Claims, err = volumes.ReadClaims(ctx, p.Env.Cluster, instance)
		if err == nil {
			err = p.prepareDisks(ctx, instance, made)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return made, nil
}

func (p *Pod) measure(stage *starttrace.Interval) (end func()) {
	stage.Begin = p.Env.Now()
	return func() { stage.End = p.Env.Now() }
}

// PlugNetwork makes the network of a running guest, with the interfaces in plug.
func (p *Pod) PlugNetwork(ctx context.Context, instance *v1.VirtualMachineInstance, plug []string) ([]network.Interface, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	return p.setUpNetwork(ctx, instance, true, plug)
}

func (p *Pod) setUpNetwork(ctx context.Context, instance *v1.VirtualMachineInstance, runs bool, comes []string) ([]network.Interface, error) {
	resolvConf, err := p.Link.ResolvConf()
	if err != nil {
		return nil, err
	}
	awaits := vmihandler.RoleOf(instance, p.Env.Node) == vmihandler.Destination
	pod := network.Pod{NetNS: p.Link.Peer.NetNS, ResolvConf: resolvConf, Awaits: awaits, Runs: runs, Comes: comes, Bindings: p.Env.Settings().NetworkBindings}
	if p.Link.SELinux.Apart() {
		root := p.Link.Peer.Root
		pod.Taps = &network.TapChild{Enter: p.Link.SELinux.Exec, Open: func() (*os.File, error) {
			return root.CharDevice(layout.TUNDevice, tunNumber, unix.O_RDWR)
		}}
	}
	if pod.Devices, err = p.Devices(instance); err != nil {
		return nil, err
	}
	interfaces, err := p.Env.Network.Setup(ctx, pod, instance)
	if err != nil {
		return nil, fmt.Errorf("preparing the network: %w", err)
	}
	return interfaces, nil
}

func (p *Pod) prepareDisks(ctx context.Context, instance *v1.VirtualMachineInstance, made *Prepared) error {
	root := p.Link.Peer.Root
	var err error
	if made.kvm, err = root.Exists(layout.KVMDevice); err != nil {
		return err
	}
	if made.vhost, err = root.Exists(layout.VhostNetDevice); err != nil {
		return err
	}
	pod := disk.Pod{Root: root, User: layout.QEMUUser, Capacity: made.Claims.Capacity, Tolerated: p.Env.Settings().LessSpaceTolerated}
	if err := p.Env.Disks(ctx, pod, instance); err != nil {
		return err
	}
	made.Images, err = p.Link.Prepare(ctx, machine.Images(instance))
	return err
}

// MakeDisks makes the missing disks that need virt-handler's privileges, and gives the devices to QEMU's user.
func MakeDisks(ctx context.Context, pod disk.Pod, instance *v1.VirtualMachineInstance) error {
	if err := disk.OwnDevices(pod); err != nil {
		return err
	}
	plan, err := disk.NewPlan(instance)
	if err != nil {
		return err
	}
	return plan.Apply(ctx, pod)
}

// Start prepares the pod and makes virt-launcher start QEMU, at a migration's target without its guest.
func (p *Pod) Start(ctx context.Context, instance *v1.VirtualMachineInstance, at vmihandler.Role) (*Prepared, error) {
	if at == vmihandler.Destination {
		// QEMU must have the same NICs as at the source. Missing ones are plugged when the guest runs here.
		instance = nichotplug.Arriving(instance)
	}
	made, err := p.Prepare(ctx, instance, false)
	if err != nil {
		return nil, err
	}
	in := p.Input(instance, made)
	if in.KVM, err = vmihandler.UsesKVM(instance, at, in.KVM); err != nil {
		return nil, fmt.Errorf("choosing what the guest runs with: %w", err)
	}
	if at == vmihandler.Destination {
		in.Incoming = instance.Status.MigrationState.MigrationUID
		if has := instance.Status.CurrentCPUTopology; has != nil {
			in.Sockets = has.Sockets
		}
		in.Memory = machine.BootMemory(instance)
	}
	if in.HostDevices, err = p.hostDevices(instance); err != nil {
		return nil, err
	}
	in.LogConsole = p.Link.LogsConsole()
	m, err := machine.Build(in)
	if err != nil {
		return nil, fmt.Errorf("building the machine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p.Env.Log.Info("starting the guest", "kvm", in.KVM, "migration", in.Incoming)
	start := launch.Start{Args: m.Args(), GracePeriodSeconds: vmihandler.GracePeriod(instance), Incoming: in.Incoming != "",
		DownwardMetrics: machine.DownwardMetrics(&instance.Spec, p.Env.Node), Shares: machine.Shares(instance)}
	if start.TPM, err = p.tpm(&instance.Spec, in.Incoming); err != nil {
		return nil, err
	}
	if err := p.raiseMemlockLimit(instance, in.Memory); err != nil {
		return nil, err
	}
	made.Launched = p.Env.Now()
	if err := p.Link.Start(ctx, start); err != nil {
		return nil, err
	}
	return made, nil
}

// Input returns the input for the guest's machine.
func (p *Pod) Input(instance *v1.VirtualMachineInstance, made *Prepared) machine.Input {
	settings := p.Env.Settings()
	kvm, _ := p.Env.KVM() // no guest is started before it is known
	in := machine.Input{
		VMI: instance, KVM: kvm && made.kvm,
		MachineType: settings.MachineType, CPUModel: settings.CPUModel, SMBIOS: settings.SMBIOS,
		Images: made.Images, Claims: made.Claims, NICs: map[string]machine.NIC{}, Now: p.Env.Now(),
	}
	for _, i := range made.Interfaces {
		in.NICs[i.Name] = machine.NIC{Tap: i.Tap, MAC: i.MAC, MTU: i.MTU, Device: i.Device, VhostNet: made.vhost}
	}
	return in
}
