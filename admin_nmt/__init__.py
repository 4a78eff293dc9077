"""Very deep Transformers for neural machine translation that train, fold and run as stock transformers models."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

from .decoding.translator import Translator
from .model.configuration_admin import AdminConfig
from .model.modeling_admin import AdminForConditionalGeneration, AdminModel
from .tokenization.fairseq_tokenizer import FairseqTokenizer
from .trainer.admin_trainer import AdminTrainer
from .trainer.arguments import AdminTrainingArguments

AutoConfig.register("admin", AdminConfig, exist_ok=True)
AutoModel.register(AdminConfig, AdminModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(AdminConfig, AdminForConditionalGeneration, exist_ok=True)
# Models trained here name the stock class in their tokenizer_config.json; those of fairseq need this one.
AutoTokenizer.register(AdminConfig, slow_tokenizer_class=FairseqTokenizer, exist_ok=True)
# Code of transformers that goes by class names looks these two up.
MODEL_MAPPING_NAMES["admin"] = "AdminModel"
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["admin"] = "AdminForConditionalGeneration"

__all__ = [
    "AdminConfig",
    "AdminForConditionalGeneration",
    "AdminModel",
    "AdminTrainer",
    "AdminTrainingArguments",
    "Translator",
]
