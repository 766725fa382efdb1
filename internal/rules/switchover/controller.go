package switchover

// PodState is what virt-controller knows of a launcher pod.
type PodState uint8

const (
	// PodRuns means that the pod exists and has not ended, whatever its container does.
	PodRuns PodState = iota
	// PodGoes means that the pod is being deleted, or that its object is gone and its
	// processes may run.
	PodGoes
	// PodEnded means that nothing of the pod runs any more: it is in a final phase, or its
	// object is gone and the time of its processes is over on a node that answers, or its node
	// is declared out of service.
	PodEnded
)

// Pod is one of the two pods of a migration.
type Pod struct {
	State PodState
	// Exit is what the container's termination message says; of a pod that has ended only.
	Exit Exit
}

// ControllerFacts is what virt-controller knows of a migration whose record the VMI has. That one is
// canceled or takes too long is not among it: package migration gives such a migration up.
type ControllerFacts struct {
	Record         Record
	Source, Target Pod
}

// ControllerAction is what virt-controller does about a migration.
type ControllerAction string

const (
	// Nothing is to be done.
	Nothing ControllerAction = "nothing"
	// ControllerRecordFailed writes failed, the reason and endTimestamp, and of an abort that it
	// succeeded. virt-controller does so only while startTimestamp is not recorded.
	ControllerRecordFailed ControllerAction = "record the failure"
	// RecordAbort writes abortRequested.
	RecordAbort ControllerAction = "request the abort"
	// DropSource removes the source pod from activePods. Before completed is recorded it
	// releases the guest to the target.
	DropSource ControllerAction = "take the source out of activePods"
	// DropTarget removes the target pod from activePods, and its label from the VMI. Before
	// failed is recorded it tells the source that the target has never run.
	DropTarget ControllerAction = "take the target out of activePods"
	// SwitchNode makes the target's node the VMI's.
	SwitchNode ControllerAction = "switch the VMI to the target"
	// EndAsSource ends the VMI as the end of the source pod says.
	EndAsSource ControllerAction = "end the VMI as the source pod ended"
	// EndAsTarget ends the VMI as the end of the target pod says.
	EndAsTarget ControllerAction = "end the VMI as the target pod ended"
	// EndAsLost makes the VMI Failed for the reason.
	EndAsLost ControllerAction = "end the VMI, whose guest is lost"
)

// ControllerStep is what virt-controller does next about a migration.
type ControllerStep struct {
	Action ControllerAction
	// Reason goes with ControllerRecordFailed, RecordAbort and EndAsLost: a sentence for the VM's
	// owner.
	Reason string
}

const (
	lostUnknown  = "the guest was sent to the target, and nobody is left who knows whether it has run there"
	lostBoth     = "both QEMUs ended during the switchover, before the guest went on in one of them"
	lostPostCopy = "the source ended during the post-copy, before all of the guest's memory was at the target"
)

// DecideController returns the next step about a migration. Deleting its target pod is
// another matter: that may be done when failed is recorded, or the record is not this
// migration's any more.
func DecideController(f ControllerFacts) ControllerStep {
	r := f.Record
	switch {
	case !r.Current, r.Final:
		return ControllerStep{Action: Nothing}
	case r.Completed:
		return f.afterCompleted()
	case r.Failed:
		return f.afterFailed()
	case f.Source.State == PodEnded:
		return f.sourceEnded()
	case f.Target.State == PodEnded:
		return f.targetEnded()
	case f.Target.State == PodGoes:
		return f.giveUp("the target pod is being deleted")
	case r.Deleting:
		return f.giveUp("the VMI is being deleted")
	}
	return ControllerStep{Action: Nothing}
}

func (f *ControllerFacts) giveUp(reason string) ControllerStep {
	switch {
	case !f.Record.Started:
		return ControllerStep{Action: ControllerRecordFailed, Reason: reason}
	case !f.Record.AbortRequested:
		return ControllerStep{Action: RecordAbort, Reason: reason}
	}
	return ControllerStep{Action: Nothing}
}

func (f *ControllerFacts) afterCompleted() ControllerStep {
	switch {
	case !f.Record.Switched:
		return ControllerStep{Action: SwitchNode}
	case f.Target.State == PodEnded:
		return ControllerStep{Action: EndAsTarget}
	case f.Source.State == PodEnded && f.Record.SourceNamed:
		return ControllerStep{Action: DropSource}
	}
	return ControllerStep{Action: Nothing}
}

func (f *ControllerFacts) afterFailed() ControllerStep {
	switch {
	case f.Source.State == PodEnded && f.Source.Exit.sent():
		return ControllerStep{Action: EndAsLost, Reason: lostBoth}
	case f.Source.State == PodEnded:
		return ControllerStep{Action: EndAsSource}
	case f.Record.TargetNamed:
		return ControllerStep{Action: DropTarget}
	}
	return ControllerStep{Action: Nothing}
}

// sent reports whether the source's end is known to have come after it had sent the guest:
// virt-launcher says so, or has said so before, when its pod was taken out of activePods.
func (f *ControllerFacts) sent() bool { return f.Source.Exit.sent() || !f.Record.SourceNamed }

// sourceEnded decides about a source pod that has ended before either side has recorded how
// the migration ended.
func (f *ControllerFacts) sourceEnded() ControllerStep {
	r := f.Record
	targetEnded := f.Target.State == PodEnded
	switch {
	case !r.Started:
		// The migration has not begun: the guest ended where it was.
		return ControllerStep{Action: EndAsSource}
	case targetEnded && f.Target.Exit.ran() && (f.sent() || !r.PostCopy):
		return ControllerStep{Action: EndAsTarget}
	case r.PostCopy && !f.sent():
		return ControllerStep{Action: EndAsLost, Reason: lostPostCopy}
	case f.Source.Exit.Known && !f.sent():
		return ControllerStep{Action: EndAsSource}
	case targetEnded:
		return ControllerStep{Action: EndAsLost, Reason: lostUnknown}
	case !f.sent():
		// The target runs the guest if it was released, and otherwise ends for the abort.
		return f.giveUp("the source pod ended without a word")
	case r.SourceNamed:
		return ControllerStep{Action: DropSource}
	}
	return ControllerStep{Action: Nothing}
}

// targetEnded decides about a target pod that has ended while the source may run.
func (f *ControllerFacts) targetEnded() ControllerStep {
	r, exit := f.Record, f.Target.Exit
	switch {
	case exit.ran():
		return ControllerStep{Action: EndAsTarget}
	case !r.Started:
		return ControllerStep{Action: ControllerRecordFailed, Reason: "the target pod has ended"}
	case !r.TargetNamed:
		// The source was told that it has never run.
		return ControllerStep{Action: Nothing}
	case exit.Known:
		return ControllerStep{Action: DropTarget}
	case !r.AbortRequested:
		return ControllerStep{Action: RecordAbort, Reason: "the target pod ended without a word"}
	case r.AbortFailed:
		return ControllerStep{Action: EndAsLost, Reason: lostUnknown}
	}
	return ControllerStep{Action: Nothing}
}
