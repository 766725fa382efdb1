package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

type specEdit func(*v1.VirtualMachineInstanceSpec)

// hot adds a hotpluggable disk, cold one of the guest's start; order is its place in the boot order, or 0.
func hot(name string, order uint) specEdit {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		plug(spec, name, onBus(v1.DiskBusSCSI))
		setOrder(spec, order)
	}
}

func cold(name string, order uint, source v1.VolumeSource) specEdit {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: name, DiskDevice: onBus(v1.DiskBusVirtio)})
		setOrder(spec, order)
	}
}

func setOrder(spec *v1.VirtualMachineInstanceSpec, order uint) {
	if order > 0 {
		spec.Domain.Devices.Disks[len(spec.Domain.Devices.Disks)-1].BootOrder = &order
	}
}

func hotMedium(name string) specEdit {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		plug(spec, name, v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}})
	}
}

func kernel(spec *v1.VirtualMachineInstanceSpec) {
	spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{}}
}

func linked(name string, state v1.InterfaceState) specEdit {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, v1.Interface{Name: name, State: state})
	}
}

func paused(spec *v1.VirtualMachineInstanceSpec) {
	spec.StartStrategy = new(v1.StartStrategyPaused)
}

func specOf(places ...specEdit) *v1.VirtualMachineInstanceSpec {
	spec := &v1.VirtualMachineInstanceSpec{}
	for _, change := range places {
		change(spec)
	}
	return spec
}

var (
	image = v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "example/disk"}}
	empty = v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}
	cloud = v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config"}}
)

func TestAwaitedVolumes(t *testing.T) {
	boots := func(names ...string) (list []Awaited) {
		for _, name := range names {
			list = append(list, Awaited{Volume: name, Boots: true})
		}
		return list
	}
	data := func(name string) Awaited { return Awaited{Volume: name} }
	for name, test := range map[string]struct {
		spec *v1.VirtualMachineInstanceSpec
		want []Awaited
	}{
		"nothing is hotpluggable":                             {specOf(cold("root", 0, image)), nil},
		"the only disk is hotpluggable":                       {specOf(hot("a", 0)), boots("a")},
		"the only medium is hotpluggable":                     {specOf(hotMedium("cd")), boots("cd")},
		"any of several hotpluggable disks may be the one":    {specOf(hot("a", 0), hot("b", 0)), boots("a", "b")},
		"what Drydock makes has no system on it":              {specOf(hot("a", 0), cold("init", 0, cloud), cold("scratch", 0, empty)), boots("a")},
		"beside a disk that the guest starts with":            {specOf(cold("root", 0, image), hot("a", 0)), []Awaited{data("a")}},
		"beside a kernel":                                     {specOf(kernel, hot("a", 0)), []Awaited{data("a")}},
		"in the boot order":                                   {specOf(cold("root", 2, image), hot("a", 1)), boots("a")},
		"in the boot order, behind another":                   {specOf(cold("root", 1, image), hot("a", 2)), boots("a")},
		"not in the boot order of others":                     {specOf(cold("root", 1, image), hot("a", 0)), []Awaited{data("a")}},
		"a boot order names the root among hotpluggable ones": {specOf(hot("data", 0), hot("root", 1)), []Awaited{data("data"), boots("root")[0]}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, AwaitedVolumes(test.spec)); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMachineThatWaitsStartsHalted(t *testing.T) {
	for name, test := range map[string]struct {
		spec         *v1.VirtualMachineInstanceSpec
		stopped      int
		waits, pause bool
	}{
		"without hotpluggable volumes":           {spec: specOf(cold("root", 0, empty))},
		"that its user wants paused":             {spec: specOf(cold("root", 0, empty), paused), stopped: 1},
		"with one":                               {spec: specOf(hot("a", 0)), stopped: 1, waits: true},
		"with one, and its user wants it paused": {spec: specOf(hot("a", 0), paused), stopped: 1, waits: true, pause: true},
		"with a link that is down":               {spec: specOf(cold("root", 0, empty), linked("a", ""), linked("b", v1.InterfaceStateLinkDown)), stopped: 1, waits: true},
		"with links that are up":                 {spec: specOf(cold("root", 0, empty), linked("a", ""), linked("b", v1.InterfaceStateLinkUp))},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *test.spec}})
			b.halt()
			args := b.Args()
			stopped := 0
			for _, arg := range args {
				if arg == "-S" {
					stopped++
				}
			}
			text := strings.Join(args, " ")
			waits, pause := strings.Contains(text, `"id":"`+WaitMarker+`"`), strings.Contains(text, `"id":"`+PauseMarker+`"`)
			if stopped != test.stopped || waits != test.waits || pause != test.pause {
				t.Errorf("the arguments are %q", args)
			}
		})
	}
	b := newBuilder(Input{VMI: &v1.VirtualMachineInstance{Spec: *specOf(hot("a", 0))}})
	b.basics()
	if !slices.Contains(b.Args(), "-S") {
		t.Error("a machine is built without it")
	}
}

func TestBootIndexes(t *testing.T) {
	for name, test := range map[string]struct {
		spec    *v1.VirtualMachineInstanceSpec
		plugged map[string]bool
		want    []BootIndex
	}{
		"the order of the spec": {
			specOf(cold("root", 0, image), hot("a", 0)), map[string]bool{"a": true},
			[]BootIndex{{"disk-root", -1}, {"disk-a", -1}, {"disk-root", 1}, {"disk-a", 2}},
		},
		"a disk that has not come has no place": {
			specOf(hot("a", 0), hot("b", 0)), map[string]bool{"b": true},
			[]BootIndex{{"disk-b", -1}, {"disk-b", 2}},
		},
		"the boot order": {
			specOf(cold("root", 2, image), hot("a", 1), hot("b", 0)), map[string]bool{"a": true, "b": true},
			[]BootIndex{{"disk-root", -1}, {"disk-a", -1}, {"disk-b", -1}, {"disk-root", 2}, {"disk-a", 1}},
		},
		"a drive is there without its medium": {
			specOf(hotMedium("cd")), nil, []BootIndex{{"disk-cd", -1}, {"disk-cd", 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, BootIndexes(test.spec, test.plugged)); diff != "" {
				t.Errorf("places (-want +got):\n%s", diff)
			}
		})
	}
}
