package driver

import (
	"context"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/requests"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// answerRequests acts on the requests of users since the last round. It comes before the round's
// observation, since it changes the guest's state, and it does not wait for a failing step.
func (d *Driver) answerRequests(ctx context.Context) {
	a := d.attached.Load()
	if a == nil {
		return
	}
	// A QEMU that does not answer holds up the driver once, not for each request: the others have no effect then.
	commands, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	for _, turn := range a.requests.Take() {
		if err := d.obey(commands, a, turn.Request); err != nil || turn.Request != power.Reboot {
			turn.Finish(err)
			continue
		}
		d.reboot(ctx, a, turn)
	}
}

func (d *Driver) obey(ctx context.Context, a *attached, r power.Request) error {
	if _, elsewhere := d.machine(); elsewhere != nil {
		return &power.Refusal{Message: elsewhere.Error()}
	}
	return a.guest.Obey(ctx, r)
}

// reboot asks the guest's agent to reboot, in the background since it may not answer. The keys are pressed for a guest
// without an agent.
func (d *Driver) reboot(ctx context.Context, a *attached, turn requests.Turn) {
	d.startHelper(func() {
		done, err := a.agent.Reboot(ctx)
		if !done && err == nil {
			err = a.requests.Ask(ctx, power.PressKeys)
		}
		turn.Finish(err)
	})
}
