package verb

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestVerbsOnAGuest(t *testing.T) {
	withCondition := func(vmi *v1.VirtualMachineInstance, c v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstance {
		vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: c, Status: corev1.ConditionTrue})
		return vmi
	}
	running := func() *v1.VirtualMachineInstance { return instance(v1.Running) }
	paused := func() *v1.VirtualMachineInstance { return withCondition(running(), v1.VirtualMachineInstancePaused) }
	with := func(change func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		vmi := running()
		change(vmi)
		return vmi
	}
	probed := with(func(vmi *v1.VirtualMachineInstance) { vmi.Spec.LivenessProbe = &v1.Probe{} })
	deaf := with(func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Features = &v1.Features{ACPI: v1.FeatureState{Enabled: new(false)}}
	})
	headless := with(func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
		vmi.Spec.Domain.Devices.AutoattachSerialConsole = new(false)
	})
	leaving := with(func(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{} })
	conflicts := func(sentence string) string {
		return `Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "vm-cirros": ` + sentence
	}
	phase := func(p string) string {
		return "Unable to connect to VirtualMachineInstance because phase is " + p + " instead of Running"
	}
	for name, test := range map[string]struct {
		verb func(*v1.VirtualMachineInstance) error
		vmi  *v1.VirtualMachineInstance
		err  string
	}{
		"pause a guest that runs":                 {Pause, running(), ""},
		"pause one that is paused":                {Pause, paused(), conflicts("VMI is already paused")},
		"pause one that is being scheduled":       {Pause, instance(v1.Scheduling), conflicts("VMI is not running")},
		"pause one that is leaving":               {Pause, leaving, conflicts("VMI is not running")},
		"pause one that its probe would kill":     {Pause, probed, `virtualmachineinstance.kubevirt.io "vm-cirros" is forbidden: Pausing VMIs with LivenessProbe is currently not supported`},
		"pause one that an I/O error has stopped": {Pause, because(paused(), v1.VirtualMachineInstancePaused, "PausedIOError"), ""},
		"pause one that a watchdog has stopped":   {Pause, because(paused(), v1.VirtualMachineInstancePaused, "PausedByWatchdog"), conflicts("VMI is already paused")},
		"wake one up that has suspended itself": {Unpause, because(withCondition(running(), v1.VirtualMachineInstanceReady),
			v1.VirtualMachineInstanceReady, "GuestSuspended"), ""},
		"unpause one that is paused":             {Unpause, paused(), ""},
		"unpause one that runs":                  {Unpause, running(), conflicts("VMI is not paused")},
		"soft-reboot by ACPI":                    {SoftReboot, running(), ""},
		"soft-reboot one that is paused":         {SoftReboot, paused(), conflicts("VMI is paused")},
		"soft-reboot one without ACPI":           {SoftReboot, deaf, conflicts("VMI neither have the agent connected nor the ACPI feature enabled")},
		"soft-reboot one without ACPI, by agent": {SoftReboot, withCondition(deaf.DeepCopy(), v1.VirtualMachineInstanceAgentConnected), ""},
		"reset one that has ended":               {Reset, instance(v1.Succeeded), conflicts("VMI is not running")},
		"ask an agent that is there":             {Agent, withCondition(running(), v1.VirtualMachineInstanceAgentConnected), ""},
		"ask an agent that is not":               {Agent, running(), conflicts("VMI does not have guest agent connected")},
		"freeze with an agent":                   {Freeze, withCondition(running(), v1.VirtualMachineInstanceAgentConnected), ""},
		"freeze without one":                     {Freeze, running(), "Internal error occurred: command Freeze failed: QEMU guest agent is not connected"},
		"console before there is a phase":        {Console, instance(""), phase("Pending")},
		"console too early":                      {Console, instance(v1.Scheduled), phase("Scheduled")},
		"console of a guest that is leaving":     {Console, leaving, phase("Terminating")},
		"console of a paused guest":              {Console, paused(), ""},
		"console where there is none":            {Console, headless, "No serial consoles are present."},
		"screen where there is none":             {VNC, headless, "No graphics devices are present."},
		"screen":                                 {VNC, running(), ""},
		"port of a guest that failed":            {PortForward, instance(v1.Failed), phase("Failed")},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := test.verb(test.vmi); err != nil {
				got = err.Error()
			}
			if got != test.err {
				t.Errorf("error is %q, want %q", got, test.err)
			}
		})
	}
}

// because gives one of a VMI's conditions a reason.
func because(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType, reason string) *v1.VirtualMachineInstance {
	for i := range vmi.Status.Conditions {
		if c := &vmi.Status.Conditions[i]; c.Type == kind {
			c.Reason = reason
		}
	}
	return vmi
}

// Clients that wait for a console try again on 400 and give up on all else.
func TestConsoleTooEarlyIsABadRequest(t *testing.T) {
	if err := Console(instance(v1.Scheduling)); !apierrors.IsBadRequest(err) {
		t.Errorf("error is %v", err)
	}
}
