package switchover

// PodState is the state of a launcher pod.
type PodState uint8

// The states of a pod.
const (
	PodRuns PodState = iota // exists and has not ended, whatever its container does
	PodGoes                 // is being deleted, or is gone and its processes may still run
	// PodEnded means that no process of the pod runs: its phase is final; or it is gone, its grace period is over and its
	// node responds; or its node is out of service.
	PodEnded
)

// Pod is one of a migration's two pods.
type Pod struct {
	State PodState
	Exit  Exit // for a pod that has ended
}

// ControllerFacts is the input of DecideController. Package migration handles cancellation and time limits.
type ControllerFacts struct {
	Record         Record
	Source, Target Pod
}

// ControllerAction is an action of virt-controller on a migration.
type ControllerAction string

// The actions of virt-controller.
const (
	Nothing ControllerAction = "nothing"
	// ControllerRecordFailed writes failed, the reason, endTimestamp, and an abort's success. It is valid only while
	// startTimestamp is not recorded.
	ControllerRecordFailed ControllerAction = "record the failure"
	RecordAbort            ControllerAction = "request the abort" // writes abortRequested
	// DropSource removes the source pod from activePods. Before completed is recorded, this releases the guest to the
	// target.
	DropSource ControllerAction = "take the source out of activePods"
	// DropTarget removes the target pod from activePods, and its label from the VMI. Before failed is recorded, this tells
	// the source that the target has never run.
	DropTarget  ControllerAction = "take the target out of activePods"
	SwitchNode  ControllerAction = "switch the VMI to the target"
	EndAsSource ControllerAction = "end the VMI as the source pod ended" // by its exit
	EndAsTarget ControllerAction = "end the VMI as the target pod ended" // by its exit
	EndAsLost   ControllerAction = "end the VMI, whose guest is lost"    // sets Failed with the reason
)

// ControllerStep is virt-controller's next step.
type ControllerStep struct {
	Action ControllerAction
	// Reason is a sentence for the VM's owner, for ControllerRecordFailed, RecordAbort and EndAsLost.
	Reason string
}

const (
	lostUnknown  = "the guest was sent to the target, and nobody is left who knows whether it has run there"
	lostBoth     = "both QEMUs ended during the switchover, before the guest went on in one of them"
	lostPostCopy = "the source ended during the post-copy, before all of the guest's memory was at the target"
)

// DecideController returns virt-controller's next step. The target pod may be deleted when failed is recorded, or the
// record is another migration's.
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

// sent is also true of a source that was removed from activePods, which requires it.
func (f *ControllerFacts) sent() bool { return f.Source.Exit.sent() || !f.Record.SourceNamed }

func (f *ControllerFacts) sourceEnded() ControllerStep {
	r := f.Record
	targetEnded := f.Target.State == PodEnded
	switch {
	case !r.Started:
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
		// The target runs the guest if it was released; otherwise the abort ends it.
		return f.giveUp("the source pod ended without a word")
	case r.SourceNamed:
		return ControllerStep{Action: DropSource}
	}
	return ControllerStep{Action: Nothing}
}

func (f *ControllerFacts) targetEnded() ControllerStep {
	r, exit := f.Record, f.Target.Exit
	switch {
	case exit.ran():
		return ControllerStep{Action: EndAsTarget}
	case !r.Started:
		return ControllerStep{Action: ControllerRecordFailed, Reason: "the target pod has ended"}
	case !r.TargetNamed:
		// The source knows already that the target has never run.
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
