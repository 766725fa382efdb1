package migration

import (
	"fmt"
	"time"

	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

const destinationInterval = 5 * time.Second

// fits reports whether the disks can be copied to their new claims, and waits if not. placed means that a target pod binds
// the claims.
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
	d.requeueAt(d.o.Now.Add(destinationInterval))
	if placed {
		d.expire(pendingLimit, "%s", why)
	}
	return false
}

// unattached names the hotplugged volumes that the target still lacks, "" for none.
func (d *decision) unattached() string {
	if ms := d.state(); ms.TargetNodeAddress != "" || ms.StartTimestamp != nil {
		return ""
	}
	return hotplug.Unattached(d.o.VMI)
}

// patientUntil returns when to ask for an obstacle of the volumes.
func (d *decision) patientUntil() time.Time {
	handedOver := d.preparedUntil().Add(-preparationLimit)
	return handedOver.Add(preparationPatience)
}

func (d *decision) asksForObstacle() bool {
	return !d.o.ObstacleAsked && !d.o.Now.Before(d.patientUntil()) && d.unattached() != ""
}

func (d *decision) awaitVolumes() {
	switch names := d.unattached(); {
	case names == "":
		d.clearWaiting()
	case !d.o.ObstacleAsked:
		d.clearWaiting()
		d.requeueAt(d.patientUntil())
	case d.o.Obstacle == "":
		d.clearWaiting()
		d.requeueAt(d.o.Now.Add(preparationInterval))
	default:
		d.wait(ReasonNotAttached, fmt.Sprintf("the hotplugged volumes (%s) are not attached to node %s yet: %s",
			names, d.state().TargetNode, d.o.Obstacle))
		d.requeueAt(d.o.Now.Add(preparationInterval))
	}
}
