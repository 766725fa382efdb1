package launcherpod

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/pod/podlimits"
	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

const mebibyte = 1 << 20

// The launcher pod's memory besides the guest's, measured with QEMU 10.0 and Linux guests at their login prompts. The
// sum's margin is a fifth: with less, the kernel kills guests on a full node.
const (
	// overheadBase is QEMU's text, heap and device models (60 MiB measured) and virt-launcher (5, at most 12).
	overheadBase = 72 * mebibyte
	// overheadPerVCPU is a thread's stack and state (2 to 3 MiB measured).
	overheadPerVCPU = 4 * mebibyte
	// overheadPageTables is the share of the guest's RAM for page tables (8 bytes per 4 KiB) and bitmaps (as much).
	overheadPageTables = 256
	// overheadRoom is the share of the room for more memory that bitmaps take before it is used: three of QEMU's with a
	// bit per 4 KiB, one more during a migration, and as much again.
	overheadRoom = 4096
	// overheadVideo is the frame buffer (16 MiB) and VNC's copy.
	overheadVideo = 32 * mebibyte
	// overheadTPM is swtpm (7 MiB measured, most of it shared libraries).
	overheadTPM = 12 * mebibyte
	// overheadShare is virtiofsd (3 MiB measured) and its 0.4 KiB for each of some ten thousand files that the guest knows,
	// which are also open files of the kernel's.
	overheadShare = 24 * mebibyte
	// overheadShareTables is the share of the guest's RAM for virtiofsd's page tables (8 bytes per 4 KiB).
	overheadShareTables = 512
	// overheadTranslation is the maximum of emulation's translation cache.
	overheadTranslation = machine.TranslationCacheMi * mebibyte
)

// Overhead returns the launcher pod's memory in bytes besides the guest's.
func Overhead(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (int64, error) {
	bytes := int64(overheadBase)
	bytes += vcpus(vmi) * overheadPerVCPU
	guest := machine.GuestMemory(&vmi.Spec)
	bytes += guest/overheadPageTables + machine.MemoryRoom(&vmi.Spec, guest)/overheadRoom
	if g := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; g == nil || *g {
		bytes += overheadVideo
	}
	if machine.HasTPM(&vmi.Spec) {
		bytes += overheadTPM
	}
	bytes += sharesOverhead(vmi, guest)
	if machine.HasDevices(&vmi.Spec) {
		bytes += machine.DeviceMemory
	}
	if settings.UseEmulation {
		bytes += overheadTranslation
	}
	if m := vmi.Spec.Domain.Memory; m != nil && m.ReservedOverhead != nil && m.ReservedOverhead.AddedOverhead != nil {
		bytes += m.ReservedOverhead.AddedOverhead.Value()
	}
	if r := settings.AdditionalGuestMemoryOverheadRatio; r != "" {
		ratio, err := strconv.ParseFloat(r, 64)
		if err != nil || ratio < 0 {
			return 0, fmt.Errorf("reading additionalGuestMemoryOverheadRatio: %q is not a positive number", r)
		}
		bytes = int64(math.Ceil(float64(bytes) * ratio))
	}
	bindings, err := bindingOverhead(vmi, settings)
	if err != nil {
		return 0, err
	}
	bytes += bindings
	return (bytes + mebibyte - 1) / mebibyte * mebibyte, nil
}

// sharesOverhead counts page tables for each virtiofsd, too: in time the guest reads files into all of its memory.
func sharesOverhead(vmi *v1.VirtualMachineInstance, guest int64) int64 {
	each := int64(overheadShare)
	if hugepages(vmi) == nil {
		each += guest / overheadShareTables
	}
	return int64(len(vmi.Spec.Domain.Devices.Filesystems)) * each
}

func vcpus(vmi *v1.VirtualMachineInstance) int64 {
	return int64(machine.VCPUs(machine.Topology(&vmi.Spec)))
}

// Requests returns the requests of the guest's pod, without devices.
func Requests(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (corev1.ResourceList, error) {
	resources, err := computeResources(vmi, settings)
	if err != nil {
		return nil, err
	}
	for _, device := range devices(settings) {
		delete(resources.Requests, device)
	}
	return resources.Requests, nil
}

// Need returns the most that the guest's pod may use until the guest is changed.
func Need(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (podlimits.Need, error) {
	vmi = withItsOwn(vmi)
	memory, err := Overhead(vmi, settings)
	if err != nil {
		return podlimits.Need{}, err
	}
	if hugepages(vmi) == nil {
		memory += machine.GuestMemory(&vmi.Spec)
	}
	cpus := vcpus(vmi)
	if cpupinning.Dedicated(&vmi.Spec.Domain) {
		cpus = cpupinning.CPUs(&vmi.Spec, settings.EvenEmulatorCPUs)
	}
	return podlimits.Need{CPU: *resource.NewQuantity(cpus, resource.DecimalSI), Memory: *bytesQuantity(memory)}, nil
}

func computeResources(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (corev1.ResourceRequirements, error) {
	domain := &vmi.Spec.Domain
	overhead, err := Overhead(vmi, settings)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	copyResources(out.Requests, domain.Resources.Requests)
	copyResources(out.Limits, domain.Resources.Limits)
	LimitCountable(out)

	if err := setMemory(&out, vmi, overhead); err != nil {
		return corev1.ResourceRequirements{}, err
	}
	if cpupinning.Dedicated(&vmi.Spec.Domain) {
		dedicate(&out, vmi, settings, overhead)
	}
	_, requested := out.Requests[corev1.ResourceCPU]
	if _, limited := out.Limits[corev1.ResourceCPU]; !requested && !limited {
		millis := vcpus(vmi) * 1000 / int64(max(1, settings.CPUAllocationRatio))
		out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(1, millis), resource.DecimalSI)
	}
	for _, device := range devices(settings) {
		out.Requests[device], out.Limits[device] = resource.MustParse("1"), resource.MustParse("1")
	}
	return out, nil
}

// dedicate makes the container one that the kubelet's static CPU manager gives CPUs of its own: whole ones, and limits that
// are equal to the requests. They have room for the guest's whole memory, also where others get less.
func dedicate(out *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, overhead int64) {
	cpus := resource.NewQuantity(cpupinning.CPUs(&vmi.Spec, settings.EvenEmulatorCPUs), resource.DecimalSI)
	out.Requests[corev1.ResourceCPU], out.Limits[corev1.ResourceCPU] = *cpus, cpus.DeepCopy()
	if hugepages(vmi) == nil {
		overhead += machine.GuestMemory(&vmi.Spec)
	}
	request, limit := out.Requests[corev1.ResourceMemory], out.Limits[corev1.ResourceMemory]
	memory := bytesQuantity(max(request.Value(), limit.Value(), overhead))
	out.Requests[corev1.ResourceMemory], out.Limits[corev1.ResourceMemory] = *memory, memory.DeepCopy()
}

func podResources(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings, facts Facts) (corev1.ResourceRequirements, error) {
	resources, err := computeResources(vmi, settings)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	if err := askForDevices(&resources, vmi, facts.Devices); err != nil {
		return corev1.ResourceRequirements{}, err
	}
	return resources, askForHostDevices(&resources, vmi, settings)
}

// Resized returns the desired CPU and memory of a running guest's launcher pod: for the VMI's spec, or the guest's
// current resources if they are more, since a guest releases them before its pod does.
func Resized(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (corev1.ResourceRequirements, error) {
	all, err := computeResources(withItsOwn(vmi), settings)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	return corev1.ResourceRequirements{Requests: resizable(all.Requests), Limits: resizable(all.Limits)}, nil
}

// withItsOwn returns the VMI with its guest's current or requested resources where they exceed the spec's.
func withItsOwn(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	domain := &out.Spec.Domain
	if has := vmi.Status.CurrentCPUTopology; has != nil && has.Sockets > machine.Topology(&vmi.Spec).Sockets {
		if domain.CPU == nil {
			domain.CPU = &v1.CPU{}
		}
		domain.CPU.Sockets = has.Sockets
	}
	if has := vmi.Status.Memory; has != nil && domain.Memory != nil && domain.Memory.MaxGuest != nil {
		for _, size := range []*resource.Quantity{has.GuestCurrent, has.GuestRequested} {
			if size != nil && size.Value() > machine.GuestMemory(&out.Spec) {
				domain.Memory.Guest = size
			}
		}
	}
	return out
}

// Kubernetes can resize only these in a running pod.
func resizable(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, has := list[name]; has {
			out[name] = q
		}
	}
	return out
}

func copyResources(to, from corev1.ResourceList) {
	for name, q := range from {
		to[name] = q.DeepCopy()
	}
}

// pageSize returns the page size as nodes' resource names have it.
func pageSize(h *v1.Hugepages) (string, error) {
	size, err := quantity.Pages(h.PageSize)
	if err != nil {
		return "", fmt.Errorf("spec.domain.memory.hugepages.pageSize: %q %w", h.PageSize, err)
	}
	return size.String(), nil
}

// Countable reports whether nodes have whole pieces of the resource.
func Countable(name corev1.ResourceName) bool {
	domain, _, has := strings.Cut(string(name), "/")
	return has && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// LimitCountable adds missing limits of countable resources: Kubernetes refuses a pod without them.
func LimitCountable(r corev1.ResourceRequirements) {
	for name, request := range r.Requests {
		if _, limited := r.Limits[name]; !limited && Countable(name) {
			r.Limits[name] = request.DeepCopy()
		}
	}
}

// Hugepages back the guest's RAM: only the overhead is ordinary memory then.
func setMemory(out *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, overhead int64) error {
	domain := &vmi.Spec.Domain
	guest := machine.GuestMemory(&vmi.Spec)
	if guest <= 0 {
		return fmt.Errorf("spec.domain.memory.guest: the guest's memory must be set")
	}
	if h := hugepages(vmi); h != nil {
		size, err := pageSize(h)
		if err != nil {
			return err
		}
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + size)
		out.Requests[name], out.Limits[name] = *bytesQuantity(guest), *bytesQuantity(guest)
		out.Requests[corev1.ResourceMemory] = *bytesQuantity(overhead)
		if _, limited := out.Limits[corev1.ResourceMemory]; limited {
			out.Limits[corev1.ResourceMemory] = *bytesQuantity(overhead)
		}
		return nil
	}
	request := guest
	if q, ok := out.Requests[corev1.ResourceMemory]; ok {
		request = q.Value()
	}
	if !domain.Resources.OvercommitGuestOverhead {
		request += overhead
	}
	out.Requests[corev1.ResourceMemory] = *bytesQuantity(request)
	if q, ok := out.Limits[corev1.ResourceMemory]; ok {
		out.Limits[corev1.ResourceMemory] = *bytesQuantity(q.Value() + overhead)
	}
	return nil
}

func bytesQuantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// devices returns a launcher's device plugin resources. With emulation, virt-handler provides /dev/kvm with the tun
// device where KVM works.
func devices(settings clusterconfig.Settings) []corev1.ResourceName {
	out := []corev1.ResourceName{layout.ResourceTUN}
	if !settings.UseEmulation {
		out = append(out, layout.ResourceKVM)
	}
	return out
}
