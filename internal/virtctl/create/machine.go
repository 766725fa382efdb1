package create

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

type options struct {
	name                   string
	namespace              string
	runStrategy            string
	memory                 string
	cpus                   uint32
	gracePeriod            int64
	containerDisks         []string
	claims                 []string
	imports                []string
	sysprep                string
	credentials            []string
	cloudInit              cloudInit
	instancetype           choice
	preference             choice
	memoryGiven, cpusGiven bool
	output                 string
}

var runStrategies = []v1.VirtualMachineRunStrategy{
	v1.RunStrategyAlways, v1.RunStrategyRerunOnFailure, v1.RunStrategyOnce, v1.RunStrategyManual, v1.RunStrategyHalted,
}

// machine builds the VirtualMachine. It includes some of admission's defaults that users commonly change (bus,
// network).
func (o *options) machine() (*v1.VirtualMachine, error) {
	strategy, err := o.strategy()
	if err != nil {
		return nil, err
	}
	memory, err := resource.ParseQuantity(o.memory)
	if err != nil || memory.Sign() <= 0 {
		return nil, fmt.Errorf("--memory must be a quantity greater than zero, such as 512Mi or 4Gi, not %q", o.memory)
	}
	if o.gracePeriod < 0 {
		return nil, fmt.Errorf("--termination-grace-period must not be negative, but is %d", o.gracePeriod)
	}
	if o.cpus == 0 {
		return nil, fmt.Errorf("--cpus must be at least 1")
	}
	name := o.name
	if name == "" {
		name = "vm-" + rand.String(5)
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return nil, fmt.Errorf("--name: %q is no name for a machine: %s", name, problems[0])
	}
	credentials, err := o.accessCredentials()
	if err != nil {
		return nil, err
	}
	disks, err := o.disks(name)
	if err != nil {
		return nil, err
	}
	vm := &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.namespace},
		Spec:       v1.VirtualMachineSpec{RunStrategy: &strategy},
	}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
		TerminationGracePeriodSeconds: &o.gracePeriod,
		Networks:                      []v1.Network{*v1.DefaultPodNetwork()},
	}}
	domain := &vm.Spec.Template.Spec.Domain
	domain.Memory = &v1.Memory{Guest: &memory}
	domain.CPU = &v1.CPU{Sockets: o.cpus}
	domain.Devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
	domain.Devices.Rng = &v1.Rng{}
	spec := &vm.Spec.Template.Spec
	spec.AccessCredentials = credentials
	for _, d := range disks {
		if d.template != nil {
			vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, *d.template)
		}
		spec.Volumes = append(spec.Volumes, d.volume)
		target := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
		if d.isCDRom {
			target = v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
			v1.Disk{Name: d.volume.Name, BootOrder: d.bootOrder, DiskDevice: target})
	}
	return vm, o.applyReferences(vm, disks)
}

// accessCredentials must precede disks: it sets their part of the cloud-init disk.
func (o *options) accessCredentials() ([]v1.AccessCredential, error) {
	var out []v1.AccessCredential
	for _, text := range o.credentials {
		credential, err := o.cloudInit.parseCredential(text)
		if err != nil {
			return nil, err
		}
		out = append(out, credential)
	}
	return out, nil
}

func (o *options) strategy() (v1.VirtualMachineRunStrategy, error) {
	names := make([]string, 0, len(runStrategies))
	for _, strategy := range runStrategies {
		if strings.EqualFold(string(strategy), o.runStrategy) {
			return strategy, nil
		}
		names = append(names, string(strategy))
	}
	return "", fmt.Errorf("--run-strategy must be one of %s, not %q", strings.Join(names, ", "), o.runStrategy)
}

// disks returns the volumes of all flags in the guest's order: the user's first, cloud-init last.
func (o *options) disks(machine string) ([]disk, error) {
	var disks []disk
	for i, text := range o.containerDisks {
		const flag = "volume-containerdisk" // its position is in the default name
		values, err := params(flag, text)
		if err != nil {
			return nil, err
		}
		source := v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: values["src"]}}
		d, err := newDisk(flag, values, fmt.Sprintf("containerdisk-%d", i), source)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	for _, text := range o.claims {
		d, err := parsePVC(text)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	for i, text := range o.imports {
		d, err := parseImport(machine, text, i)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	if o.sysprep != "" {
		d, err := parseSysprep(o.sysprep)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	volume, err := o.cloudInit.volume()
	if err != nil {
		return nil, err
	}
	if volume != nil {
		disks = append(disks, disk{volume: *volume})
	}
	return disks, checkDisks(disks)
}

func checkDisks(disks []disk) error {
	names, orders := map[string]bool{}, map[uint]string{}
	for _, d := range disks {
		if names[d.volume.Name] {
			return fmt.Errorf("two volumes are called %q: give one another name with the parameter name", d.volume.Name)
		}
		names[d.volume.Name] = true
		if d.bootOrder == nil {
			continue
		}
		if other := orders[*d.bootOrder]; other != "" {
			return fmt.Errorf("volumes %q and %q have the same bootorder %d", other, d.volume.Name, *d.bootOrder)
		}
		orders[*d.bootOrder] = d.volume.Name
	}
	return nil
}
