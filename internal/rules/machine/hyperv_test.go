package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhatEnlightenmentsNeed(t *testing.T) {
	const clock, vmx = "clock: {timer: {hyperv: {present: true}}}\n", "cpu: {features: [{name: vmx, policy: require}]}\n"
	for name, test := range map[string]struct{ domain, want, unmet string }{
		"none":                           {"features: {acpi: {}}", "features: {acpi: {}}", ""},
		"none of them is named":          {"features: {hyperv: {}}", "features: {hyperv: {}}", ""},
		"interrupts between processors":  {"features: {hyperv: {ipi: {}}}", "features: {hyperv: {ipi: {}, vpindex: {enabled: true}}}", ""},
		"flushes":                        {"features: {hyperv: {tlbflush: {}}}", "features: {hyperv: {tlbflush: {}, vpindex: {enabled: true}}}", ""},
		"flushes of guests of the guest": {"features: {hyperv: {tlbflush: {direct: {}}}}", "features: {hyperv: {tlbflush: {direct: {}}, vapic: {enabled: true}, vpindex: {enabled: true}}}", ""},
		"flushes that are off":           {"features: {hyperv: {tlbflush: {enabled: false, direct: {}}}}", "features: {hyperv: {tlbflush: {enabled: false, direct: {}}}}", ""},
		"direct flushes that are off":    {"features: {hyperv: {tlbflush: {direct: {enabled: false}}}}", "features: {hyperv: {tlbflush: {direct: {enabled: false}}, vpindex: {enabled: true}}}", ""},
		"synthetic interrupts":           {"features: {hyperv: {synic: {}}}", "features: {hyperv: {synic: {}, vpindex: {enabled: true}}}", ""},
		"what is off needs nothing":      {"features: {hyperv: {synic: {enabled: false}, synictimer: {enabled: false}}}", "features: {hyperv: {synic: {enabled: false}, synictimer: {enabled: false}}}", ""},
		"timers, which need what needs something": {"features: {hyperv: {synictimer: {}}}",
			clock + "features: {hyperv: {synictimer: {}, synic: {enabled: true}, vpindex: {enabled: true}}}", ""},
		"timers beside other timers": {"clock: {utc: {}, timer: {hpet: {present: false}}}\nfeatures: {hyperv: {synictimer: {}}}",
			"clock: {utc: {}, timer: {hpet: {present: false}, hyperv: {present: true}}}\nfeatures: {hyperv: {synictimer: {}, synic: {enabled: true}, vpindex: {enabled: true}}}", ""},
		"guests of the guest": {"features: {hyperv: {evmcs: {}}}", vmx + "features: {hyperv: {evmcs: {}, vapic: {enabled: true}}}", ""},
		"guests of the guest, beside other features": {"cpu: {features: [{name: x2apic}]}\nfeatures: {hyperv: {evmcs: {}}}",
			"cpu: {features: [{name: x2apic}, {name: vmx, policy: require}]}\nfeatures: {hyperv: {evmcs: {}, vapic: {enabled: true}}}", ""},
		"what is there stays": {"cpu: {features: [{name: vmx, policy: optional}]}\n" + clock + "features: {hyperv: {evmcs: {}, synictimer: {}, synic: {}, vpindex: {}, vapic: {}}}",
			"cpu: {features: [{name: vmx, policy: optional}]}\n" + clock + "features: {hyperv: {evmcs: {}, synictimer: {}, synic: {}, vpindex: {}, vapic: {}}}", ""},
		"what is switched off stays, too": {
			"cpu: {features: [{name: vmx, policy: disable}]}\nclock: {timer: {hyperv: {present: false}}}\n" +
				"features: {hyperv: {evmcs: {}, vapic: {enabled: false}, ipi: {}, vpindex: {enabled: false}, synictimer: {}, synic: {enabled: false}}}",
			"cpu: {features: [{name: vmx, policy: disable}]}\nclock: {timer: {hyperv: {present: false}}}\n" +
				"features: {hyperv: {evmcs: {}, vapic: {enabled: false}, ipi: {}, vpindex: {enabled: false}, synictimer: {}, synic: {enabled: false}}}",
			"evmcs: features.hyperv.vapic, evmcs: cpu.features.vmx, ipi: features.hyperv.vpindex, synictimer: features.hyperv.synic, synictimer: clock.timer.hyperv",
		},
		"a forbidden feature of the CPU": {"cpu: {features: [{name: vmx, policy: forbid}]}\nfeatures: {hyperv: {evmcs: {}, vapic: {}}}",
			"cpu: {features: [{name: vmx, policy: forbid}]}\nfeatures: {hyperv: {evmcs: {}, vapic: {}}}", "evmcs: cpu.features.vmx"},
		"what is added needs something that is off": {"features: {hyperv: {synictimer: {}, vpindex: {enabled: false}}}",
			clock + "features: {hyperv: {synictimer: {}, synic: {enabled: true}, vpindex: {enabled: false}}}", "synic: features.hyperv.vpindex"},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := domain(t, test.domain), domain(t, test.want)
			CompleteHyperv(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			var unmet []string
			for _, n := range UnmetHyperv(got) {
				unmet = append(unmet, strings.Join(n.Of[2:], ".")+": "+strings.Join(n.Needs, "."))
			}
			if said := strings.Join(unmet, ", "); said != test.unmet {
				t.Errorf("unmet: %s; want %s", said, test.unmet)
			}
		})
	}
}

func domain(t *testing.T, text string) *v1.DomainSpec {
	t.Helper()
	out := &v1.DomainSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}
