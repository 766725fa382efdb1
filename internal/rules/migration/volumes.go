package migration

import (
	"fmt"
	"time"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/volumemigration"
)

// destinationInterval is how often claims are looked at that disks can't be copied to yet.
const destinationInterval = 5 * time.Second

// fits reports whether the disks that change their claim can be copied, and says what the migration waits
// for if not. placed means that there is a target pod, by which its claims are bound.
func (d *decision) fits(placed bool) bool {
	if len(volumemigration.Of(d.o.VMI)) == 0 {
		return true
	}
	if !d.o.DestinationsAsked {
		d.p.Needs = NeedDestinations
		return false
	}
	why := volumemigration.Unfit(d.o.Destinations, placed)
	if why == "" {
		return true
	}
	d.wait(ReasonDestinations, why)
	d.lookAgain(d.o.Now.Add(destinationInterval))
	if placed {
		d.expire(pendingLimit, "%s", why)
	}
	return false
}

// The volumes that were plugged into a guest come to the target's node before anything else does: see
// package hotplug. Here it is told what keeps them.

// unattached names the volumes that the target still lacks; empty when it lacks none.
func (d *decision) unattached() string {
	if ms := d.state(); ms.TargetNodeAddress != "" || ms.StartTimestamp != nil {
		return ""
	}
	return hotplug.Unattached(d.o.VMI)
}

// patientUntil is when the volumes have taken so long that somebody should know why.
func (d *decision) patientUntil() time.Time {
	handedOver := d.preparedUntil().Add(-preparationLimit)
	return handedOver.Add(preparationPatience)
}

// asksForObstacle reports whether the API server is to be asked for what keeps the volumes.
func (d *decision) asksForObstacle() bool {
	return !d.o.ObstacleAsked && !d.o.Now.Before(d.patientUntil()) && d.unattached() != ""
}

// awaitVolumes passes on what keeps the attachment pods at the target from running.
func (d *decision) awaitVolumes() {
	switch names := d.unattached(); {
	case names == "":
		d.goOn()
	case !d.o.ObstacleAsked:
		d.goOn()
		d.lookAgain(d.patientUntil())
	case d.o.Obstacle == "":
		d.goOn()
		d.lookAgain(d.o.Now.Add(preparationInterval))
	default:
		d.wait(ReasonNotAttached, fmt.Sprintf("the hotplugged volumes (%s) are not attached to node %s yet: %s",
			names, d.state().TargetNode, d.o.Obstacle))
		d.lookAgain(d.o.Now.Add(preparationInterval))
	}
}
