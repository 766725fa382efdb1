// Package volume holds virtctl's verbs that plug and unplug disks: addvolume and removevolume. Each must be one
// request; virt-api decides whether it is possible.
package volume

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// NewCommands returns the package's commands.
func NewCommands(e *env.Env) []*cobra.Command {
	return []*cobra.Command{newAdd(e), newRemove(e)}
}

type request struct {
	machine, volume string
	// persist also changes the VM's next start.
	persist, dryRun bool
	// The options have no field for these.
	parameters []client.Parameter
}

func (r *request) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.volume, "volume-name", "", "name of the volume, which is that of its DataVolume or claim")
	cmd.Flags().BoolVar(&r.persist, "persist", false, "change the virtual machine, too, so that the change outlasts a restart")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "have the server check the request without doing it")
}

func (r *request) check() error {
	if r.volume == "" {
		return fmt.Errorf("--volume-name must name the volume")
	}
	return nil
}

// The words are those of KubeVirt's virtctl.
func (r *request) give(ctx context.Context, e *env.Env, c *client.Client, namespace, verb string, options any) error {
	ref := client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: r.machine}
	if r.persist {
		ref.Resource = client.VirtualMachines
	}
	if r.dryRun {
		fmt.Fprintln(e.Out, "Dry Run execution")
	}
	err := c.Put(ctx, ref, verb+"volume", options, r.parameters...)
	if apierrors.IsNotFound(err) && !r.persist {
		err = stopped(ctx, c, namespace, r.machine, err)
	}
	if err != nil {
		return fmt.Errorf("asking to %s volume %s: %w", verb, r.volume, err)
	}
	fmt.Fprintf(e.Out, "Successfully submitted %s volume request to VM %s for volume %s\n", verb, r.machine, r.volume)
	return nil
}

// stopped replaces the error about a missing instance if the virtual machine exists but does not run.
func stopped(ctx context.Context, c *client.Client, namespace, name string, notFound error) error {
	if _, err := c.VM(ctx, namespace, name); err != nil {
		return notFound
	}
	return fmt.Errorf("VM %s is not running; --persist changes what it starts with", name)
}

func (r *request) stages() []string {
	if !r.dryRun {
		return nil
	}
	return []string{metav1.DryRunAll}
}

type removal struct {
	request
	force bool
}

func newRemove(e *env.Env) *cobra.Command {
	var r removal
	cmd := &cobra.Command{
		Use:   "removevolume VMI",
		Short: "Unplug a volume from a running virtual machine",
		Long: "Unplug a volume from a running machine. Its guest is asked to release the disk first;\n" +
			"until it has, the volume's status says Detaching. From a guest that does not release it the disk\n" +
			"can then be taken by force: what the guest still reads and writes there fails.",
		Example: e.Example("# Unplug the volume 'data':", "removevolume vm-cirros --volume-name=data",
			"# And from the virtual machine, so that it starts without it:", "removevolume vm-cirros --volume-name=data --persist",
			"# The guest does not release it, and must be without it now:", "removevolume vm-cirros --volume-name=data --force"),
		Args: env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.machine = args[0]
			if err := r.check(); err != nil {
				return err
			}
			if r.force {
				r.parameters = []client.Parameter{{Name: "force", Value: "true"}}
			}
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			return r.give(cmd.Context(), e, c, namespace, "remove", &v1.RemoveVolumeOptions{Name: r.volume, DryRun: r.stages()})
		},
	}
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.force, "force", false, "take the disk of a volume that is Detaching from a guest that does not release it")
	return cmd
}

func (r *removal) check() error {
	if r.force && r.persist {
		return fmt.Errorf("--force is about the guest that runs and --persist about what it starts with: remove the volume with --persist first, and then force it out")
	}
	return r.request.check()
}

type addition struct {
	request
	serial, cache, diskType, bus string
}

func newAdd(e *env.Env) *cobra.Command {
	var a addition
	cmd := &cobra.Command{
		Use:   "addvolume VMI",
		Short: "Plug a volume into a running virtual machine",
		Long:  "Plug a DataVolume or a claim into a running machine as a disk.",
		Example: e.Example("# Plug in the DataVolume or claim 'data':", "addvolume vm-cirros --volume-name=data",
			"# On the bus virtio, with a serial of its own, and also when the machine starts again:",
			"addvolume vm-cirros --volume-name=data --bus=virtio --serial=0815 --persist"),
		Args: env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.machine = args[0]
			if err := a.check(); err != nil {
				return err
			}
			disk, err := a.disk()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			source, err := find(ctx, c, namespace, a.volume)
			if err != nil {
				return err
			}
			return a.give(ctx, e, c, namespace, "add", &v1.AddVolumeOptions{
				Name: a.volume, Disk: disk, VolumeSource: source, DryRun: a.stages(),
			})
		},
	}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&a.serial, "serial", "", "serial number that the guest sees; the volume's name if none is given")
	cmd.Flags().StringVar(&a.cache, "cache", "", "how the host treats what the guest writes: none, writethrough or writeback")
	cmd.Flags().StringVar(&a.diskType, "disk-type", "disk", "what the guest sees: disk, or lun for a SCSI device passed through")
	cmd.Flags().StringVar(&a.bus, "bus", "scsi", "bus of the disk: scsi or virtio")
	return cmd
}

func (a *addition) disk() (*v1.Disk, error) {
	bus := v1.DiskBus(a.bus)
	if bus != v1.DiskBusSCSI && bus != v1.DiskBusVirtio {
		return nil, fmt.Errorf("--bus must be scsi or virtio, not %q", a.bus)
	}
	d := &v1.Disk{Name: a.volume, Serial: a.serial}
	switch a.diskType {
	case "disk":
		d.Disk = &v1.DiskTarget{Bus: bus}
	case "lun":
		d.LUN = &v1.LunTarget{Bus: bus}
	default:
		return nil, fmt.Errorf("--disk-type must be disk or lun, not %q", a.diskType)
	}
	switch v1.DriverCache(a.cache) {
	case "", v1.CacheNone, v1.CacheWriteThrough, v1.CacheWriteBack:
		d.Cache = v1.DriverCache(a.cache)
	default:
		return nil, fmt.Errorf("--cache must be none, writethrough or writeback, not %q", a.cache)
	}
	return d, nil
}

// A DataVolume comes first, since its claim has the same name.
func find(ctx context.Context, c *client.Client, namespace, name string) (*v1.HotplugVolumeSource, error) {
	isDataVolume, err := c.HasDataVolume(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("looking for DataVolume %s/%s: %w", namespace, name, err)
	}
	if isDataVolume {
		return &v1.HotplugVolumeSource{DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true}}, nil
	}
	_, err = c.Core().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("volume %s is not a DataVolume or PersistentVolumeClaim", name)
	case err != nil:
		return nil, fmt.Errorf("looking for PVC %s/%s: %w", namespace, name, err)
	}
	source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	source.ClaimName = name
	return &v1.HotplugVolumeSource{PersistentVolumeClaim: source}, nil
}
