package launcherpod

import (
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine"
)

const mebibyte = 1 << 20

// What a launcher pod needs beside the guest's own memory. Decision record 070
// has the figures that these follow from, and the margin of each.
const (
	// overheadBase is QEMU's text, heap and device models (54 MiB measured)
	// and virt-launcher (5 measured, 12 at most).
	overheadBase = 66 * mebibyte
	// overheadPerVCPU is a thread's stack and state (2 to 3 measured).
	overheadPerVCPU = 4 * mebibyte
	// overheadPageTables is the share of the guest's RAM that page tables take:
	// 8 bytes for each 4 KiB, and as much again for bitmaps.
	overheadPageTables = 256
	// overheadVideo is the frame buffer of 16 MiB and VNC's copy of it.
	overheadVideo = 32 * mebibyte
	// overheadTranslation is the most that emulation keeps of translated code.
	overheadTranslation = machine.TranslationCacheMi * mebibyte
)

// Overhead is the memory in bytes that the launcher pod needs beside the
// guest's: QEMU and virt-launcher. Emulation adds its translation cache.
func Overhead(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (int64, error) {
	bytes := int64(overheadBase)
	bytes += vcpus(vmi) * overheadPerVCPU
	bytes += machine.GuestMemory(&vmi.Spec) / overheadPageTables
	if g := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; g == nil || *g {
		bytes += overheadVideo
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
	// Whole mebibytes read better in `kubectl describe`.
	return (bytes + mebibyte - 1) / mebibyte * mebibyte, nil
}

// vcpus is how many CPUs the guest gets, by the rule that the machine is built by.
func vcpus(vmi *v1.VirtualMachineInstance) int64 {
	return int64(machine.VCPUs(machine.Topology(&vmi.Spec)))
}

// computeResources turns what the VMI asks for into what its container asks
// for: the guest's share and the overhead, CPU by the allocation ratio,
// hugepages, devices.
func computeResources(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (corev1.ResourceRequirements, error) {
	domain := &vmi.Spec.Domain
	overhead, err := Overhead(vmi, settings)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	copyResources(out.Requests, domain.Resources.Requests)
	copyResources(out.Limits, domain.Resources.Limits)

	if err := setMemory(&out, vmi, overhead); err != nil {
		return corev1.ResourceRequirements{}, err
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

// Resized are the CPU and the memory that the launcher pod of a guest that runs is to have: those of
// the VMI's spec, or of what the guest has if that is more. A guest gives back first.
func Resized(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) (corev1.ResourceRequirements, error) {
	if has := vmi.Status.CurrentCPUTopology; has != nil && has.Sockets > machine.Topology(&vmi.Spec).Sockets {
		vmi = vmi.DeepCopy()
		if vmi.Spec.Domain.CPU == nil {
			vmi.Spec.Domain.CPU = &v1.CPU{}
		}
		vmi.Spec.Domain.CPU.Sockets = has.Sockets
	}
	all, err := computeResources(vmi, settings)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	return corev1.ResourceRequirements{Requests: resizable(all.Requests), Limits: resizable(all.Limits)}, nil
}

// resizable are the resources that a pod's containers can get more or less of.
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

// setMemory adds the overhead to the memory that is asked for. With hugepages
// the guest's RAM comes from them and only the overhead is ordinary memory.
func setMemory(out *corev1.ResourceRequirements, vmi *v1.VirtualMachineInstance, overhead int64) error {
	domain := &vmi.Spec.Domain
	guest := machine.GuestMemory(&vmi.Spec)
	if guest <= 0 {
		return fmt.Errorf("spec.domain.memory.guest: the guest's memory must be set")
	}
	if h := hugepages(vmi); h != nil {
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + h.PageSize)
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

// devices are the device plugin resources of every launcher. Emulation takes
// none that only hardware virtualization has: virt-handler hands out /dev/kvm
// with the tun device where it has found it to work.
func devices(settings clusterconfig.Settings) []corev1.ResourceName {
	out := []corev1.ResourceName{layout.ResourceTUN}
	if !settings.UseEmulation {
		out = append(out, layout.ResourceKVM)
	}
	return out
}
