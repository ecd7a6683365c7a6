/* agreement.pml, where a decision and its vote are one step: whoever writes the model has to know that nothing lies in between. */
byte came, launched;
bool agreed = true;

active [N] proctype rank() {
  if
  :: d_step { came++ }
  :: d_step { agreed = false; came++ }
  fi;
  came == N;
  d_step { launched++ };
  launched == N
}
