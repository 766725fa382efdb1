package machine

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// HypervNeed is an enlightenment's need for another setting. Both are paths below spec.domain.
type HypervNeed struct {
	Of, Needs []string
}

// CompleteHyperv switches on the requirements of the guest's Hyper-V enlightenments, unless the spec says otherwise:
// QEMU starts no guest without them. They do no harm to an emulated guest, which has no enlightenments.
func CompleteHyperv(domain *v1.DomainSpec) {
	for _, d := range hypervDependencies(domain) {
		if d.asked() && d.on.missing() {
			d.on.add()
		}
	}
}

// UnmetHyperv returns the enlightenments of a completed spec whose need is switched off.
func UnmetHyperv(domain *v1.DomainSpec) []HypervNeed {
	var out []HypervNeed
	for _, d := range hypervDependencies(domain) {
		if d.asked() && d.on.off() {
			out = append(out, HypervNeed{Of: append([]string{"features", "hyperv"}, d.of...), Needs: d.on.path})
		}
	}
	return out
}

type hypervDependency struct {
	of    []string
	asked func() bool
	on    requirement
}

type requirement struct {
	path         []string
	missing, off func() bool
	add          func()
}

// hypervDependencies has each enlightenment before those that it needs.
func hypervDependencies(domain *v1.DomainSpec) []hypervDependency {
	if domain.Features == nil || domain.Features.Hyperv == nil {
		return nil
	}
	h := domain.Features.Hyperv
	vapic, vpindex, synic := enlightenment("vapic", &h.VAPIC), enlightenment("vpindex", &h.VPIndex), enlightenment("synic", &h.SyNIC)
	asked := func(f **v1.FeatureState) func() bool { return func() bool { return *f != nil && isOn(*f) } }
	timer := func() bool { return h.SyNICTimer != nil && isOn(&h.SyNICTimer.FeatureState) }
	flush := func() bool { return h.TLBFlush != nil && isOn(&h.TLBFlush.FeatureState) }
	direct := func() bool { return flush() && h.TLBFlush.Direct != nil && isOn(h.TLBFlush.Direct) }
	return []hypervDependency{
		{[]string{"evmcs"}, asked(&h.EVMCS), vapic},
		{[]string{"evmcs"}, asked(&h.EVMCS), virtualization(domain)},
		{[]string{"ipi"}, asked(&h.IPI), vpindex},
		{[]string{"tlbflush"}, flush, vpindex},
		{[]string{"tlbflush", "direct"}, direct, vapic},
		{[]string{"synictimer"}, timer, synic},
		{[]string{"synictimer"}, timer, hypervClock(domain)},
		{[]string{"synic"}, asked(&h.SyNIC), vpindex},
	}
}

func enlightenment(name string, f **v1.FeatureState) requirement {
	return requirement{
		path:    []string{"features", "hyperv", name},
		missing: func() bool { return *f == nil },
		off:     func() bool { return *f != nil && !isOn(*f) },
		add:     func() { *f = &v1.FeatureState{Enabled: new(true)} },
	}
}

func hypervClock(domain *v1.DomainSpec) requirement {
	missing := func() bool {
		return domain.Clock == nil || domain.Clock.Timer == nil || domain.Clock.Timer.Hyperv == nil
	}
	return requirement{
		path:    []string{"clock", "timer", "hyperv"},
		missing: missing,
		off:     func() bool { return !missing() && isFalse(domain.Clock.Timer.Hyperv.Enabled) },
		add: func() {
			if domain.Clock == nil {
				domain.Clock = &v1.Clock{}
			}
			if domain.Clock.Timer == nil {
				domain.Clock.Timer = &v1.Timer{}
			}
			domain.Clock.Timer.Hyperv = &v1.HypervTimer{Enabled: new(true)}
		},
	}
}

// virtualization requires the CPU feature for nested guests. Enlightened VMCS are for these only.
func virtualization(domain *v1.DomainSpec) requirement {
	const vmx = "vmx"
	policy := func() (string, bool) {
		if domain.CPU == nil {
			return "", false
		}
		i := slices.IndexFunc(domain.CPU.Features, func(f v1.CPUFeature) bool { return f.Name == vmx })
		if i < 0 {
			return "", false
		}
		return domain.CPU.Features[i].Policy, true
	}
	return requirement{
		path:    []string{"cpu", "features", vmx},
		missing: func() bool { _, said := policy(); return !said },
		off: func() bool {
			p, said := policy()
			return said && (p == policyDisable || p == policyForbid)
		},
		add: func() {
			if domain.CPU == nil {
				domain.CPU = &v1.CPU{}
			}
			domain.CPU.Features = append(domain.CPU.Features, v1.CPUFeature{Name: vmx, Policy: policyRequire})
		},
	}
}
