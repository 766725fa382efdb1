package fill

import (
	"hash"

	"drydock.dev/drydock/internal/importer/target"
)

// checkpoints write the journal from time to time, in a goroutine of their own: the
// content goes on coming while the disk takes what came. The zero value makes none.
type checkpoints struct {
	// made is set where checkpoints are made.
	made    bool
	disk    *target.Disk
	journal journalStore
	// base is the journal without place and sum.
	base journal
	sum  hash.Hash
	// every is how far the content goes between two of them, most how far at all
	// behind one that is on the disk: that much is fetched again after a kill.
	every, most int64
	// safe is the place of the last one that is done, next that of the one under way.
	safe, next int64
	underWay   chan error
}

// newCheckpoints begins at a place. 1/128 of the content from one to the next and
// 3/128 at most keep what is fetched again below 5 %, with all that is on its way (decision 104).
func newCheckpoints(disk *target.Disk, notes journalStore, base journal, sum hash.Hash) checkpoints {
	every := min(max(base.Size/128, 64<<10), 256<<20)
	return checkpoints{made: true, disk: disk, journal: notes, base: base, sum: sum, every: every, most: 3 * every, safe: base.Place}
}

// at is told every place up to which all is written once settle returns.
func (c *checkpoints) at(place int64, settle func() error) error {
	if !c.made || place-c.safe < c.every {
		return nil
	}
	if c.underWay != nil {
		if err := c.look(place-c.safe >= c.most); err != nil || c.underWay != nil || place-c.safe < c.every {
			return err
		}
	}
	if err := settle(); err != nil {
		return err
	}
	state, err := saveSum(c.sum)
	if err != nil {
		return err
	}
	now := c.base
	now.Place, now.Sum = place, state
	c.next, c.underWay = place, make(chan error, 1)
	go func() {
		err := c.disk.Sync()
		if err == nil {
			err = c.journal.write(now)
		}
		c.underWay <- err
	}()
	return nil
}

// look takes note of the one under way when it is done, or waits until it is.
func (c *checkpoints) look(wait bool) error {
	if wait {
		return c.wait()
	}
	select {
	case err := <-c.underWay:
		return c.arrived(err)
	default:
		return nil
	}
}

// wait waits for the one that is under way.
func (c *checkpoints) wait() error {
	if c.underWay == nil {
		return nil
	}
	return c.arrived(<-c.underWay)
}

func (c *checkpoints) arrived(err error) error {
	c.underWay = nil
	if err == nil {
		c.safe = c.next
	}
	return err
}
