package dat

import "kdapl/verbs"

// discipline is the notification rule of one stream that feeds an EVD: which of its completions
// notify (section "completion flags" of the DAT specification).
type discipline uint8

const (
	discNone      discipline = iota // no data transfer stream
	discThreshold                   // every completion
	discUnsignalled
	discSolicited
	discKinds
)

func (d discipline) String() string {
	return [...]string{"none", "THRESHOLD", "UNSIGNALLED", "SOLICITED_WAIT"}[d]
}

// disciplineOf is the one that an EP's completion flags attribute asks for.
func disciplineOf(f CompletionFlags) discipline {
	switch f {
	case CompletionUnsignalled:
		return discUnsignalled
	case CompletionSolicitedWait:
		return discSolicited
	}
	return discThreshold
}

// disciplines counts the streams of each discipline that feed an EVD.
type disciplines struct {
	n     [discKinds]int
	exact bool
}

func (d *disciplines) add(k discipline)    { d.n[k]++ }
func (d *disciplines) remove(k discipline) { d.n[k]-- }

// fits reports whether a stream may join. The specification wants all data transfer streams
// of an EVD to have one discipline, since an adapter may notify for a whole CQ only, and no
// other streams beside a SOLICITED_WAIT one. dat looks at each completion, so that any mixture is
// exact, provided that the device tells solicited receives from others.
func (d *disciplines) fits(k discipline, streams Stream) bool {
	if d.exact || k == discNone {
		return true
	}
	for other := discThreshold; other < discKinds; other++ {
		if other != k && d.n[other] > 0 {
			return false
		}
	}
	return k == discThreshold || streams&^(StreamDTO|StreamRMRBind) == 0
}

// arm is the kind of notification that the EVD needs of its CQ.
func (d *disciplines) arm() verbs.ArmKind {
	if d.n[discSolicited] > 0 && d.n[discThreshold]+d.n[discUnsignalled] == 0 {
		return verbs.ArmSolicited
	}
	return verbs.ArmNext
}

// config is uDAPL's name for it.
func (d *disciplines) config() EVDState {
	switch {
	case d.n[discSolicited] > 0:
		return EVDStateConfigSolicited
	case d.n[discUnsignalled] > 0:
		return EVDStateConfigNotify
	}
	return EVDStateConfigThreshold
}

// thresholdOnly reports whether a wait may ask for more than one event.
func (d *disciplines) thresholdOnly() bool { return d.n[discUnsignalled]+d.n[discSolicited] == 0 }
