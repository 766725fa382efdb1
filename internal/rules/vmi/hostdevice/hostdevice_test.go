package hostdevice

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

const (
	card  = "example.com/card"
	other = "nvidia.com/TU104GL-Tesla_T4"
)

// with returns a spec with host devices and GPUs, given as NAME=RESOURCE.
func with(hostDevices, gpus string) *v1.VirtualMachineInstanceSpec {
	spec := &v1.VirtualMachineInstanceSpec{}
	for _, d := range strings.Fields(hostDevices) {
		name, resource, _ := strings.Cut(d, "=")
		spec.Domain.Devices.HostDevices = append(spec.Domain.Devices.HostDevices, v1.HostDevice{Name: name, DeviceName: resource, Tag: "of-" + name})
	}
	for _, d := range strings.Fields(gpus) {
		name, resource, _ := strings.Cut(d, "=")
		spec.Domain.Devices.GPUs = append(spec.Domain.Devices.GPUs, v1.GPU{Name: name, DeviceName: resource})
	}
	return spec
}

func TestTheDevicesOfASpec(t *testing.T) {
	want := []Device{
		{"hostdev-a", "a", "devices.hostDevices[0]", card, "of-a", "HostDevice"},
		{"hostdev-b", "b", "devices.hostDevices[1]", other, "of-b", "HostDevice"},
		{"gpu-a", "a", "devices.gpus[0]", card, "", "GPU"},
	}
	spec := with("a="+card+" b="+other, "a="+card)
	if diff := cmp.Diff(want, Of(spec), cmp.AllowUnexported(Device{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for of, want := range map[*v1.VirtualMachineInstanceSpec]string{
		spec: "the guest has devices of its node (a, b)", with("", "g="+card): "the guest has devices of its node (g)", with("", ""): "",
	} {
		if got := Immovable(of); got != want || Any(of) != (want != "") {
			t.Errorf("it says %q, and has any: %v; want %q", got, Any(of), want)
		}
	}
}

func TestWhatAPodRequests(t *testing.T) {
	permitted := Permitted{{Name: card}, {Name: other, External: true}}
	got, err := Requests(with("a="+card+" b="+other, "a="+card), permitted)
	if want := map[corev1.ResourceName]int64{card: 2, other: 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("it requests %v: %v", got, err)
	}
	for name, c := range map[string]struct {
		spec      *v1.VirtualMachineInstanceSpec
		permitted Permitted
		want      string
	}{
		"one that is not permitted": {with("a="+card+" b=example.com/none", ""), permitted,
			"spec.domain.devices.hostDevices[1].deviceName: HostDevice example.com/none is not permitted in permittedHostDevices configuration of the KubeVirt object, " +
				"which permits example.com/card, nvidia.com/TU104GL-Tesla_T4 in pciHostDevices"},
		"a GPU where nothing is permitted": {with("", "g="+card), nil,
			"spec.domain.devices.gpus[0].deviceName: GPU example.com/card is not permitted in permittedHostDevices configuration of the KubeVirt object, " +
				"which permits no PCI device in pciHostDevices"},
	} {
		if requests, err := Requests(c.spec, c.permitted); err == nil || err.Error() != c.want || requests != nil {
			t.Errorf("%s: it requests %v: %v", name, requests, err)
		}
	}
	var many Permitted
	for i := range 20 {
		many = append(many, Resource{Name: fmt.Sprintf("a/%02d", i)})
	}
	if refusal := many.Refusal(Device{Resource: "b/c"}); !strings.Contains(refusal, "permits a/00, a/01,") || !strings.Contains(refusal, ", a/15 and 4 more in") {
		t.Errorf("of many: %s", refusal)
	}
}

// A pod's environment is the kubelet's, but a broken device plugin may have written anything into it.
func TestWhichDeviceOfThePodIsWhich(t *testing.T) {
	const cards, others = "PCI_RESOURCE_EXAMPLE_COM_CARD", "PCI_RESOURCE_NVIDIA_COM_TU104GL-TESLA_T4"
	if Variable(card) != cards || Variable(other) != others {
		t.Fatalf("the variables are %s and %s", Variable(card), Variable(other))
	}
	const refused = "spec.domain.devices.gpus[0].deviceName: which device of the node it is, the launcher pod was not told: the device plugin of example.com/card " +
		"must set PCI_RESOURCE_EXAMPLE_COM_CARD to the PCI address of each device that it gives, such as 0000:65:00.0, and the variable is "
	for name, c := range map[string]struct {
		spec        *v1.VirtualMachineInstanceSpec
		environment []string
		want        map[string]string
		refused     string
	}{
		"none": {spec: with("", ""), want: map[string]string{}},
		"in the order of the spec, without what is not asked for": {
			spec:        with("a="+card+" b="+other, "a="+card),
			environment: []string{"PATH=/bin", cards + "=0000:65:00.0,0000:03:00.0,0000:04:00.0", others + "=0000:0a:1f.7"},
			want:        map[string]string{"hostdev-a": "0000:65:00.0", "hostdev-b": "0000:0a:1f.7", "gpu-a": "0000:03:00.0"},
		},
		"with a comma at the end": {spec: with("", "g="+card), environment: []string{cards + "=0000:65:00.0,"}, want: map[string]string{"gpu-g": "0000:65:00.0"}},
		"the variable twice":      {spec: with("", "g="+card), environment: []string{cards + "=0000:65:00.0", cards + "=0000:66:00.0"}, want: map[string]string{"gpu-g": "0000:65:00.0"}},
		"much":                    {spec: with("", "g="+card), environment: []string{cards + "=" + strings.Repeat("0000:65:00.0,", maxAllocated)}, want: map[string]string{"gpu-g": "0000:65:00.0"}},
		"too few":                 {spec: with("a="+card, "g="+card), environment: []string{cards + "=0000:65:00.0"}, refused: `"0000:65:00.0"`},
		"one twice":               {spec: with("a="+card, "g="+card), environment: []string{cards + "=0000:65:00.0,0000:65:00.0"}, refused: `"0000:65:00.0,0000:65:00.0"`},
		"no variable":             {spec: with("", "g="+card), environment: []string{"PCI_RESOURCE_EXAMPLE_COM_CARDS=0000:65:00.0", "PCIDEVICE_EXAMPLE_COM_CARD=0000:65:00.0", cards}, refused: `""`},
		"an empty one":            {spec: with("", "g="+card), environment: []string{cards + "="}, refused: `""`},
		"no address":              {spec: with("", "g="+card), environment: []string{cards + "=0000:65:00.0,../../etc"}, refused: `"0000:65:00.0,../../etc"`},
		"upper case":              {spec: with("", "g="+card), environment: []string{cards + "=0000:AF:00.0"}, refused: `"0000:AF:00.0"`},
		"very much": {spec: with("", "g="+card), environment: []string{cards + "=" + strings.Repeat("0000:65:00.0,", maxAllocated) + "0000:65:00.0"},
			refused: `"` + strings.Repeat("0000:65:00.0,", 4) + `0000:65:00.0"`},
	} {
		got, err := Assign(c.spec, c.environment)
		switch {
		case c.refused != "":
			if err == nil || err.Error() != refused+c.refused || got != nil {
				t.Errorf("%s: %v, %v, want\n%s", name, got, err, refused+c.refused)
			}
		case err != nil || !maps.Equal(got, c.want):
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Two resources' variables may have the same name. No device may be given twice.
func TestADeviceIsGivenOnce(t *testing.T) {
	spec := with("a=example.com/a.b b=example.com/a_b", "")
	if got, err := Assign(spec, []string{"PCI_RESOURCE_EXAMPLE_COM_A_B=0000:65:00.0"}); err == nil {
		t.Errorf("it is assigned as %v", got)
	}
}
