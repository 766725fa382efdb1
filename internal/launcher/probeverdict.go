package launcher

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/launcher/bootprobe"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// Emulated, the probe's guest takes 0.3 s, and 3 s of CPU time with UEFI; the init container may share its CPUs with twenty
// others. With KVM it gets two seconds, or twice the time of the emulated run before: a slower KVM is useless.
const (
	tcgDeadline  = time.Minute
	kvmDeadline  = 2 * time.Second
	uefiDeadline = 2 * time.Minute

	// probeDeadline bounds all guests together, for which virt-handler waits.
	probeDeadline = 5 * time.Minute
)

type prober struct {
	qemu, requested string
	device          string
	// root is bootprobe.Probe's.
	root string
	// deadline replaces those of the guests in tests, whose KVM is as slow as emulation.
	deadline time.Duration
}

// outcomes has nil for guests that did not run.
type outcomes struct {
	tcg, kvm, tcgUEFI, kvmUEFI *bootprobe.Outcome
	kvmAbsent, uefiAbsent      bool
}

func (p prober) probe(ctx context.Context) nodeprobe.Result {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	var emulated, accelerated capabilities
	var o outcomes
	o.tcg = p.run(ctx, bootprobe.TCG, bootprobe.BIOS, tcgDeadline, &emulated)
	uefi, stop := context.WithCancel(ctx)
	defer stop()
	var emulatedUEFI sync.WaitGroup
	_, err := os.Stat(p.root + layout.UEFICode)
	o.uefiAbsent = err != nil
	if o.tcg.OK && !o.uefiAbsent {
		emulatedUEFI.Go(func() { o.tcgUEFI = p.run(uefi, bootprobe.TCG, bootprobe.UEFI, uefiDeadline, nil) })
	}
	_, err = os.Stat(p.device)
	o.kvmAbsent = os.IsNotExist(err)
	if !o.kvmAbsent && p.requested != nodeprobe.TCG {
		p.withKVM(ctx, &o, &accelerated)
	}
	if o.kvm != nil && o.kvm.OK && (o.kvmUEFI == nil || o.kvmUEFI.OK) {
		// No guest is emulated here.
		stop()
	}
	emulatedUEFI.Wait()
	if uefi.Err() != nil {
		o.tcgUEFI = nil
	}
	return result(o, p.requested, emulated, accelerated)
}

func (p prober) withKVM(ctx context.Context, o *outcomes, found *capabilities) {
	o.kvm = p.run(ctx, bootprobe.KVM, bootprobe.BIOS, kvmTime(o.tcg), found)
	if o.kvm.Starved {
		// A moment without CPU time must not cost the node its KVM.
		again := p.run(ctx, bootprobe.TCG, bootprobe.BIOS, tcgDeadline, nil)
		o.kvm = p.run(ctx, bootprobe.KVM, bootprobe.BIOS, kvmTime(again), found)
	}
	if o.kvm.OK && !o.uefiAbsent {
		o.kvmUEFI = p.run(ctx, bootprobe.KVM, bootprobe.UEFI, uefiDeadline, nil)
	}
}

func kvmTime(tcg *bootprobe.Outcome) time.Duration {
	if !tcg.OK {
		return kvmDeadline
	}
	return max(kvmDeadline, 2*tcg.Took.Round(100*time.Millisecond))
}

func (p prober) run(ctx context.Context, accel string, firmware bootprobe.Firmware, deadline time.Duration, found *capabilities) *bootprobe.Outcome {
	guest := bootprobe.Probe{QEMU: p.qemu, Root: p.root, Accel: accel, Firmware: firmware, Deadline: cmp.Or(p.deadline, deadline)}
	if found != nil {
		guest.Ask = func(ctx context.Context, client *qmp.Client) (err error) {
			*found, err = queryCapabilities(ctx, client)
			return err
		}
	}
	outcome := guest.Run(ctx)
	return &outcome
}

// result is pure.
//
// KVM must run the guest through both firmwares: a pod with /dev/kvm may use either, and the scheduler does not
// distinguish them. If emulation fails through UEFI too, the fault is the firmware's.
func result(o outcomes, requested string, emulated, accelerated capabilities) nodeprobe.Result {
	r := nodeprobe.Result{
		TCG: condense(o.tcg, o.tcgUEFI), KVM: condense(o.kvm, o.kvmUEFI), Requested: requested, UEFIAbsent: o.uefiAbsent,
		QEMU: emulated.version, Build: emulated.build, MachineTypes: emulated.machines, DeprecatedMachineTypes: emulated.deprecated, CPUModels: emulated.models,
	}
	switch {
	case o.kvmAbsent:
		r.KVM = nodeprobe.Accelerator{Absent: true, Reason: "the node has no " + layout.KVMDevice}
	case o.kvm == nil:
		r.KVM.Reason = "not tried: DRYDOCK_ACCEL asks for emulation"
	case r.KVM.UEFI != "" && o.tcgUEFI != nil && o.tcgUEFI.OK:
		r.KVM.Usable, r.KVM.Stage = false, o.kvmUEFI.Stage
		r.KVM.Reason, r.KVM.UEFI = "through UEFI, "+r.KVM.UEFI, ""
	}
	starvedKVM := o.kvm != nil && o.kvm.Starved
	r.Starved = starvedKVM && !r.KVM.Usable || o.tcg.Starved && r.Use() == ""
	if r.KVM.Usable {
		r.QEMU, r.CPUModels = accelerated.version, accelerated.models
		r.MachineTypes, r.DeprecatedMachineTypes = accelerated.machines, accelerated.deprecated
	}
	return r
}

func condense(bios, uefi *bootprobe.Outcome) nodeprobe.Accelerator {
	var a nodeprobe.Accelerator
	if bios == nil {
		return a
	}
	a.Usable, a.Reason, a.Milliseconds = bios.OK, bios.Reason, bios.Took.Milliseconds()
	if !bios.OK {
		a.Stage = bios.Stage
	}
	if uefi != nil {
		a.UEFI = uefi.Reason
	}
	return a
}

func summary(r nodeprobe.Result) string {
	use := r.Use()
	if use == "" {
		use = "nothing"
	}
	return fmt.Sprintf("guests can run with %s; KVM: %s; emulation: %s", use, verdict(r.KVM), verdict(r.TCG))
}

func verdict(a nodeprobe.Accelerator) string {
	switch {
	case !a.Usable:
		return a.Reason
	case a.UEFI != "":
		return fmt.Sprintf("usable (%d ms), but not through UEFI: %s", a.Milliseconds, a.UEFI)
	}
	return fmt.Sprintf("usable (%d ms)", a.Milliseconds)
}
