package machine

import (
	"time"
	// The node agent's image has no time zone files, and a VMI may name a zone.
	_ "time/tzdata"

	v1 "kubevirt.io/api/core/v1"
)

const rtcTime = "2006-01-02T15:04:05"

func (b *builder) clock() {
	value := "base=" + b.clockBase()
	var timers v1.Timer
	if c := b.spec.Clock; c != nil && c.Timer != nil {
		timers = *c.Timer
	}
	value += b.rtcTimer(timers.RTC)
	if t := timers.HPET; t != nil {
		b.machineOption("hpet", onOff(!isFalse(t.Enabled)))
		if t.TickPolicy != "" && t.TickPolicy != v1.HPETTickPolicyDelay {
			b.refuse("clock.timer.hpet.tickPolicy", "QEMU's HPET knows the policy delay only")
		}
	}
	if t := timers.PIT; t != nil {
		if isFalse(t.Enabled) {
			b.machineOption("pit", "off")
		}
		switch t.TickPolicy {
		case "":
		case v1.PITTickPolicyDelay, v1.PITTickPolicyDiscard:
			// Only KVM's timer has this option; the emulated one delays.
			if b.in.KVM {
				b.option("global", "driver=kvm-pit,property=lost_tick_policy,value="+string(t.TickPolicy))
			}
		default:
			b.refuse("clock.timer.pit.tickPolicy", "%q is none of delay, discard", t.TickPolicy)
		}
	}
	b.option("rtc", value)
}

// clockBase adds an offset to the current time, since QEMU supports only a fixed date.
func (b *builder) clockBase() string {
	c := b.spec.Clock
	switch {
	case c == nil:
		return "utc"
	case c.Timezone != nil:
		zone, err := time.LoadLocation(string(*c.Timezone))
		if err != nil {
			b.refuse("clock.timezone", "%q is not a time zone", *c.Timezone)
			return ""
		}
		return b.in.Now.In(zone).Format(rtcTime)
	case c.UTC != nil && c.UTC.OffsetSeconds != nil && *c.UTC.OffsetSeconds != 0:
		return b.in.Now.UTC().Add(time.Duration(*c.UTC.OffsetSeconds) * time.Second).Format(rtcTime)
	}
	return "utc"
}

func (b *builder) rtcTimer(t *v1.RTCTimer) string {
	if t == nil {
		return ""
	}
	if isFalse(t.Enabled) {
		b.refuse("clock.timer.rtc.present", "a q35 machine cannot be without its clock")
	}
	var text string
	switch t.Track {
	case v1.TrackGuest:
		text += ",clock=vm"
	case v1.TrackWall:
		text += ",clock=host"
	}
	switch t.TickPolicy {
	case v1.RTCTickPolicyCatchup:
		text += ",driftfix=slew"
	case v1.RTCTickPolicyDelay:
		text += ",driftfix=none"
	}
	return text
}
