package driver

import (
	"context"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest/runcontrol"
	"drydock.dev/drydock/internal/rules/vmi/power"
)

// answerRequests acts on users' requests. It comes before the round's observation, because it changes the guest's state,
// and before any failing step.
func (d *Driver) answerRequests(ctx context.Context) {
	a := d.attached.Load()
	if a == nil {
		return
	}
	// A QEMU that does not answer delays the driver once for all requests: the others fail.
	commands, cancel := context.WithTimeout(ctx, concern.CommandTimeout)
	defer cancel()
	for _, turn := range a.requests.Take() {
		var err error
		if _, elsewhere := d.runningGuest(); elsewhere != nil {
			err = &power.Refusal{Message: elsewhere.Error()}
		} else {
			err = runcontrol.Of(a.guest).HandleRequest(commands, turn.Request)
		}
		if err != nil || turn.Request != power.Reboot {
			turn.Finish(err)
			continue
		}
		// The agent may never answer. A guest without an agent gets the keys.
		d.helpers.Go(func() {
			done, err := a.agent.Reboot(ctx)
			if !done && err == nil {
				err = a.requests.Ask(ctx, power.PressKeys)
			}
			turn.Finish(err)
		})
	}
}
